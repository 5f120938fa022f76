"""What `lakefold up`, the demo and tests need on one machine: Java, jars, and a local Kafka broker."""
