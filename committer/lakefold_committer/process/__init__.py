"""The committer's process.

It decides which partitions to fold, runs a thread for each, and checks stores and topics beside them.
"""
