"""The commit log: how transactions get into an order that all can rely on.

The loop. A writer stands at the end of its table's outcomes (`outcomes`), seals its transaction in an
envelope (app id, batch id, table) and sends it to the transactions topic (`producer`); the broker gives it
an offset, and that position is the order: nobody votes on it later. The committer takes over its partition
(`reporter`, which fences whoever held it), asks where the proven offset is (`stamp`), and reads on from
there without a gap (`consumer`). Each message is told apart (`envelope`): an entry is folded; what is no
entry is answered and goes to the dead letters with the reason; what only a newer release can read stops its
table. When the versions are published, a report gives all outcomes, the dead letters and the stamped offset
in one Kafka transaction. The writer knows its outcome by its position; readers are woken by it. A crash
anywhere before the report leaves the offset where it was, and the next committer reads the same entries and
gives the same answers.

Conditions of the log end the loop instead of being guessed at: another cluster or topic id (`guard`),
entries that are gone, an offset beyond the end. A broker that is away does not: everybody keeps trying
(`admin` says what each error means). A file of envelopes is a log too (`filelog`). This is the only package
that talks to Kafka; `envelope`, `answers`, `partition` and `filelog` need no client of it.
"""
