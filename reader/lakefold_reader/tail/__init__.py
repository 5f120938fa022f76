"""Follows a table: the next version by its name, what it changed, and how long to wait for it."""
