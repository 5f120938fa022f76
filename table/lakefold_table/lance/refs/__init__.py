"""Tags and branches: their names and the paths of their files (`names`), and the files' content (`files`)."""
