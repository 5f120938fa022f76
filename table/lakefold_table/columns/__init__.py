"""What is said of columns in tables of every format: types that Arrow and Parquet know by their names alone.

Whoever writes or reads rows needs it, whichever format has the rows.
"""
