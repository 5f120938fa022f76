"""The change feed of any format."""
