"""Manifest files: a file to a table in memory and back, the files' names, and the feature flags.

`codec` takes a file apart and puts one together; `wire` and `expansion` check bytes before they are decoded.
`fragments` keeps the list of fragments encoded, in `chunks` that the next version shares.
"""
