"""What is said of columns in any format: conditions in SQL, limited texts, types that Arrow knows by name."""
