"""A version of a table, opened for reading, and the history that led to it."""
