"""Writes to the log.

Proposals by their writers, and a committer's outcomes with its offset in one transaction.
"""
