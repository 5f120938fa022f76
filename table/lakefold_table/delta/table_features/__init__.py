"""The features of Delta tables: which this release reads and writes, and why it refuses the others."""
