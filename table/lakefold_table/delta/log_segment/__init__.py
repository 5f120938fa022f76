"""Which files of `_delta_log` make a version: a checkpoint, and the commits after it."""
