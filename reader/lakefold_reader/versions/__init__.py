"""The versions of a table.

Which there are, which one is meant by a time or a position, and what each says of itself.
"""
