"""Deletion vectors: the deleted rows of a logical file, inline or in files."""
