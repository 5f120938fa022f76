"""Reads the log without a gap.

Entries, outcomes and dead letters, and the proofs that it is still the same log.
"""
