"""The verbs of maintenance: `compact`, `optimize-indices`, `maintain`."""
