"""The fold: a function from a table and entries to the next table and outcomes. Pure."""
