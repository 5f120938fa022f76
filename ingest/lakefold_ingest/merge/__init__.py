"""What upserts and deletes need: the rows of the table that a batch concerns, and what becomes of them.

`clauses` says what happens to which row, as data. `batch_keys` and `key_hashes` are pure functions of the
batch's keys, `merge_batch` prepares its rows. `matching` finds rows in the table (`read_version`),
`conditions` evaluates SQL on pairs of rows, `deletions` marks the old rows as deleted, `new_rows` builds the
rows that replace them. `operations/upsert.py` and `operations/delete.py` make one proposal of it all. What a
format does in its own way is behind `format`, also how rows are replaced that a condition or a table has.
"""
