"""`append`, `upsert` and `delete` through the log without Spark; from Python and as verbs."""
