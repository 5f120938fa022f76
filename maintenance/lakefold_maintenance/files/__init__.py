"""Files of a table that nothing names: those of refused proposals and of processes that were killed."""
