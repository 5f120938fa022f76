"""The verbs of maintenance: `compact`, `maintain`."""
