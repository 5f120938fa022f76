"""Keeps tables fast under a stream: small fragments are joined, old versions are removed.

What has to be done is decided by pure functions (`planning`), from the table's policy and the figures of its
fragments. `rewriting` has it done by the table's format (`lance`, `delta`) and proposes each result through
the log. So a compaction has its place in the order of the writers' proposals. `scheduling` says when.
"""
