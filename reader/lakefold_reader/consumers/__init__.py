"""Readers known by a name, what is kept for them, and the versions that nobody needs any more."""
