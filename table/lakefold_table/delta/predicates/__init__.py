"""Predicates of Delta's SQL, and whether rows of a file can match one, by what the log says of it."""
