"""The rows of fragments without their values: deleted rows, row ids, and the versions that changed rows.

`bitmaps` are sets of row offsets; `deletions` are the deletion files that hold them, and `merge_deletions`
merges those of several writers. Row ids and row versions are stored as `segments` of numbers (`rowids`,
`row_versions`). `moved_rows` and `rewritten_rows` carry them over to new fragments, and `numbering` assigns
new ids.
"""
