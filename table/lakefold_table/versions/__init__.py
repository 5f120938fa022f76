"""The versions of a table on its store: find the newest, read one, publish the next, remove them."""
