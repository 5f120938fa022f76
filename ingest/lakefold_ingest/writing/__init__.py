"""A batch from its operation to its outcome, exactly once: the same for each operation and each door."""
