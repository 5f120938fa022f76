"""Delta tables behind the seam of `lakefold_reader.format`: versions, their history, and their rows.

What is not built raises `NotBuiltError`, which names it: rows by their ids, branches, blobs, files outside of
the table.
"""
