"""The change feed.

Which rows each version inserted, changed or deleted, planned from fragments and then read.
"""
