"""The versions of a table.

Which versions exist, which version a time or a position names, and from where a reader can continue.
"""
