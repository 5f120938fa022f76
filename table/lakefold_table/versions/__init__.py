"""The versions of a table on its store: find the newest, read a version, publish the next, remove them."""
