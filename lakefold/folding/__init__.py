"""The verbs that fold: the committer, a file of envelopes, and the comparison with what is stored."""
