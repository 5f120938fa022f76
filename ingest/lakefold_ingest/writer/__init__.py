"""A writer for a service: many small appends share a batch, and several batches are on their way at once."""
