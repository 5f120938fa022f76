"""Lakefold's own messages: envelopes and outcomes of the log, and what a version remembers of its entries."""
