"""The options of a write, as data: their names in Spark and in Python, their values and their meaning."""
