"""The committer's process.

Which partitions it folds, a thread for each of them, and the checks of stores and topics beside them.
"""
