"""The index section: how a table's indices change when its fragments and columns change.

A compaction may leave indices as they are and record in a fragment-reuse index where rows went (`reuse`).
"""
