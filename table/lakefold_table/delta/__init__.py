"""Delta's rules: the actions of its log, which files make a version, and the snapshot that they add up to.

The source is Delta's transaction log protocol. What of it these modules rely on is in
docs/format/delta.md; code cites it as "Delta fact 2.1". Nothing here does IO: functions take the content of
files and return values.

`format.py` answers the seam of `lakefold_table.format`.
"""
