"""Filters: SQL on the rows of data files, and which files can have rows that meet them."""
