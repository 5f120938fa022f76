"""Envelopes too large for a message: fetched within a bound of memory, and removed after their answer."""
