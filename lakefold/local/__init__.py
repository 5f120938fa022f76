"""What a laptop or a test needs that a cluster has already: jars, and a Kafka broker on loopback."""
