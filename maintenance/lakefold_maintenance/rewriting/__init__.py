"""Rewrites the fragments of a plan with pylance, and proposes the results through the log."""
