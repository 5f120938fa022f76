"""From rows to files: columns fitted to the table, and Lance fragments written from Arrow batches."""
