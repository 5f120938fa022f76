"""Maintenance of Lance tables."""
