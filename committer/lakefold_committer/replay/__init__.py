"""Folds entries again, from the log or from a file, and compares the versions with those that are stored."""
