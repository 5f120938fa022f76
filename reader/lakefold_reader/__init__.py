"""From versions to rows.

A snapshot is one version, opened by number, tag, time or log position. A tail knows version V, requests V+1
by its name, reads from that version's own transaction what changed, and returns only the rows that are new,
with a cursor that survives restarts. Rows are read through Lance; versions are read by Lakefold itself.
"""
