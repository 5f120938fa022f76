"""Verbs for single proposals: `propose` sends one, `explain` shows its outcome, `redrive` repeats it."""
