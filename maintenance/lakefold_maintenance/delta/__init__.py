"""Maintenance of Delta tables."""
