"""What `lakefold up`, the demo and tests need on a single machine: Java, jars, and a local Kafka broker."""
