"""From the log to the next version of a table.

The loop: poll the partitions, group entries that may share a version, ask which files the fold needs and
bring them, fold (pure: table state and entries in, next state and outcomes out), publish the version by one
put-if-not-exists, report the outcomes. What was folded is remembered in the table itself (its marks), so a
committer that dies at any point is replaced by one that reads the marks and goes on from there. Two may run
at once; the put decides.
"""
