"""From the log to the next version.

The loop of a partition (`loop/partition.py`) *polls* messages, decodes them and adds each entry to the queue
of its table (`loop/table_queue.py`). Tasks beside the loop work on each queue (`loop/table_scheduler.py`).
They cut the next *group*, for which at most one version is made (`fold/grouping.py`). They *fold* it
(`tables/table_writer.py`): fetch what the fold needs (`tables/requirements.py`) and call the pure function
(table, entries) -> (next table, outcomes, publication) (`fold/fold.py`). They *publish* the version by one
conditional put while the next group is already folded. If another client has published a version with the
same number, they read it and fold again. The loop *reports* the outcomes as they come (`loop/reporting.py`),
with the offset below which every entry is answered, in one Kafka transaction. If a table can't be worked on,
it is parked and tried again, and the others continue. An error that concerns the whole partition stops it
(`process/daemon.py`).

A crash before the report breaks no promise. The next committer begins at the offset that was reported last
(`recovery/start_offset.py`), opens the tables (`recovery/open_table.py`), and reads in their versions how the
entries that they contain were answered. The same fold runs over files without Kafka (`replay/file_fold.py`).
"""
