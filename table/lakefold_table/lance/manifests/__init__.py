"""A manifest file, to a table in memory and back; where it lies, and what its flags say.

`codec` takes a file apart and puts one together; `wire` and `expansion` look at bytes before they are
decoded;
`fragments` keeps the list of fragments encoded, in `chunks` that the next version shares.
"""
