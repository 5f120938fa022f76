"""Data files as writers and compactions of Delta tables make them: Parquet, statistics, their names."""
