"""`append`: rows into a table through the log, without Spark; from Python and from the command line."""
