"""The verbs that fold: `committer` and `fold` publish versions, `replay` compares with stored versions."""
