"""Delta tables as a writer needs them: Parquet files, and the proposals that name these."""
