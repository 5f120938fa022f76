"""The commit log: gives transactions an order that all clients rely on.

A writer moves to the end of its table's outcomes (`outcomes`), encodes its transaction as an envelope (app
id, batch id, table) and sends it to the transactions topic (`producer`). The broker assigns an offset, and
that position is the order: it never changes later. The committer takes over its partition (`reporter`, which
fences the committer that had it before), reads the committed offset (`offset_metadata`), and reads from that
offset without a gap (`consumer`). Each message is decoded (`envelope`). An entry is folded. A message that is
not an entry is answered and copied to the dead letters with the reason. A message that only a newer release
can read stops its table. After the versions are published, a report writes all outcomes, the dead letters and
the offset in one Kafka transaction. The writer finds its outcome by its position, and readers are woken by
it. If a process dies anywhere before the report, the offset is unchanged, and the next committer reads the
same entries and gives the same answers.

Faults of the log raise an error and are never guessed at: another cluster or topic id (`topic_identity`),
entries that were removed, an offset beyond the end. An unreachable broker does not end the loop: every client
keeps trying (`admin` maps each error code to what the caller must do). A file of envelopes is a log too
(`file_log`). This is the only package that uses Kafka's client library; `envelope`, `claims`, `partitioner`
and `file_log` do without it.
"""
