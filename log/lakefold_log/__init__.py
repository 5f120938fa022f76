"""The commit log: how transactions get into an order that all can rely on.

A writer seals its transaction in an envelope (app id, batch id, table) and sends it to the transactions
topic; the broker gives it an offset, and that position is the order: nobody votes on it later. The committer
reads entries by position from the partitions it was given, and answers each of them on the outcomes topic,
in the same Kafka transaction that moves its stamped offset. Writers wait for their outcome by position;
readers are woken by it. What can't be decoded or was refused lies in the dead letters, with the reason. This
is the only package that talks to Kafka.
"""
