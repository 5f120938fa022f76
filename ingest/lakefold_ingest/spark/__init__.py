"""Spark's end of ingest: the function for `foreachBatch`."""
