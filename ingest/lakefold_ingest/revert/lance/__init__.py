"""Rows of Lance tables followed through their versions, and the proposal that undoes a batch."""
