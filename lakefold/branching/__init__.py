"""The verbs about older versions: `tag`, `branch` and `restore` of one, `revert` of single batches."""
