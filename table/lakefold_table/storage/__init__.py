"""Where a table's files lie: what a table needs of a store (`base`), and the stores that offer it."""
