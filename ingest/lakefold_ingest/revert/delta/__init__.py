"""Rows of Delta tables followed through their versions, and the proposal that undoes a batch."""
