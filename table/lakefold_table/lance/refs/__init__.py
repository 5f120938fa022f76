"""Tags and branches: what they may be called and where they lie (`names`), and their files (`files`)."""
