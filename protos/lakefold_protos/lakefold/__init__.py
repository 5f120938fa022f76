"""Lakefold's own messages: the envelope and the outcome of the log, and what a version remembers of its entries."""
