"""From the log to the next version.

The loop, for each partition (`partition`): *poll* the messages that are there; decode them and sort them by
table; cut each table's entries into *groups* of which each makes at most one version (`grouping`); *fold* a
group (`owned`): bring what the fold needs to know (`observing`), call the pure function (table, entries) ->
(next table, outcomes, publication) (`fold`), *publish* the version by one conditional put, and where somebody
else took its place, read theirs and fold again; then *report* all outcomes and the offset in one Kafka
transaction. What is not reachable is tried again; what must not go on stops the process (`daemon`).

A crash anywhere before the report changes nothing that was promised: the next committer opens the tables
(`opening`), reads from the offset that was reported last, and finds in the versions themselves what was
answered to the entries that they cover. The same fold runs over files without Kafka (`filefold`).
"""
