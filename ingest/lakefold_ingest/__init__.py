"""From batches of rows to transactions in the log.

A batch is written in three steps. Its rows become Lance fragments, files that no version names yet (`rows`).
An operation names these files in an envelope that is built on the newest version of the table (`operations`,
`proposals`). The envelope is sent to the log, and the committer's outcome is the answer (`writing`). A batch
that is run again has the same key (app id, batch id), so the committer answers Duplicate and no row is added
twice.

In Spark the executors write the fragments and the driver does the rest (`spark`).
"""
