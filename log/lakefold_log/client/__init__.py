"""The connection to the cluster: how clients are set up, what they may ask, and what the topics must be."""
