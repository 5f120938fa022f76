"""Compactions whose tasks Spark runs."""
