"""The messages of the log: envelopes, claims, outcomes and their signatures as bytes and as values."""
