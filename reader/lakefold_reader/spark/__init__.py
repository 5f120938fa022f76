"""Tables as a source of Spark: options, columns and filters, and what the driver plans and executors read."""
