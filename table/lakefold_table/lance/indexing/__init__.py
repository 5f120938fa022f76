"""The index section: what becomes of indices where fragments and columns change under them.

A compaction may leave them as they are and say in a fragment-reuse index where rows went (`reuse`).
"""
