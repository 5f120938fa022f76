"""The versions of a table on its store.

Find the newest, read one, publish the next exactly once, and remove them.
"""
