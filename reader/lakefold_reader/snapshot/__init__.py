"""One version opened to be looked at and read, and the history that led to it."""
