"""What a batch may do to a table: an operation builds the envelope of a batch on one version of it."""
