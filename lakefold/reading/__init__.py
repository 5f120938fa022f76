"""The verbs that read a table: versions, rows, changes, tags, branches and consumers."""
