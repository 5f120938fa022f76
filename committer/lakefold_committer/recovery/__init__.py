"""Opens a table, finds the offset to begin with, and checks the marks against the log and the outcomes."""
