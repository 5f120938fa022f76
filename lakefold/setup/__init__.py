"""The verbs `up`, `down` and `status`: start and stop a local broker, show brokers, topics and tables."""
