"""What is said of columns in tables of every format.

Conditions in SQL, texts of a limited length, and types that Arrow knows by their names alone.
"""
