"""Writes to the log.

Writers send proposals; a committer writes outcomes and its offset in one transaction.
"""
