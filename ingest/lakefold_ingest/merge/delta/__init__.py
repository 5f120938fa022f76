"""How rows of a Delta table are found and changed."""
