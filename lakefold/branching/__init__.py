"""The verbs `tag`, `branch` and `restore`: name a version, begin a branch at it, make it the newest again."""
