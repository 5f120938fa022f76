"""From the log to the next version.

The loop, for each partition (`partition`): *poll* the messages that are there, decode them and hand each to
the line of its table (`line`). A line is taken forward by tasks beside the loop (`advancing`): cut the next
*group*, of which at most one version is made (`grouping`); *fold* it (`owned`): bring what the fold needs to
know (`observing`), call the pure function (table, entries) -> (next table, outcomes, publication) (`fold`);
*put* the version by one conditional put, while the next group is folded already; where somebody else took its
place, read theirs and fold again. *Report* the outcomes as they come (`reporting`), with the offset below
which all is answered, in one Kafka transaction. A table that can't be gone on with is parked and tried again,
and the others go on; what the whole partition must not go on with stops it (`daemon`).

A crash anywhere before the report changes nothing that was promised: the next committer opens the tables
(`opening`), reads from the offset that was reported last, and finds in the versions themselves what was
answered to the entries that they cover. The same fold runs over files without Kafka (`filefold`).
"""
