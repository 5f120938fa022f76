"""From a Spark batch to a transaction in the log.

The driver opens the table once per batch: that version is the read version, and its schema and field ids go
to the executors. Each executor writes its rows as Lance fragments, files that no version names yet. The
driver gathers what the executors wrote, makes one transaction of it whose uuid follows from (app id, batch
id, table), and sends it. A batch that Spark runs again is the same transaction, so the committer answers
Duplicate and no row comes twice.
"""
