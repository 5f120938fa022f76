"""Delta tables behind the seam of `lakefold_reader.format`: versions, their history, and their rows.

What is not built (tail, the change feed, filters, Spark) raises `NotBuiltError`, which names it.
"""
