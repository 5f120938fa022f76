"""Rows of a version's data files: columns, deletions and row ids. The one door to pylance is here."""
