"""Change feeds of Delta tables: what the actions of a commit did to rows, and the rows."""
