"""How rows of a Lance table are found and changed."""
