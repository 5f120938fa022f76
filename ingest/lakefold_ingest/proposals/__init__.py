"""From files to proposals: the key of a batch, and the envelopes that are sent to the log."""
