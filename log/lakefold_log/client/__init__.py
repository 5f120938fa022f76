"""The connection to the cluster: how clients are configured, what they query, and what the topics must be."""
