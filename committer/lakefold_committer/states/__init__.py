"""The states of a table in the committer, as data: each state, each event, and what follows."""
