"""Unnamed files of a table: those of refused proposals and of processes that were killed."""
