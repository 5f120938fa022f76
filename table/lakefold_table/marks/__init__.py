"""What a version remembers of the log.

The last position, the batches that were folded, and the committer that folded them. Pure.
"""
