"""Opens a table and finds the offset to begin with.

Which marks count, and whether they fit the log and the reports.
"""
