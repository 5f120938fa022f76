"""A table at one version: what the actions of its log add up to."""
