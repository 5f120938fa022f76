"""What the reader asks of a table format, and the values in which a format answers."""
