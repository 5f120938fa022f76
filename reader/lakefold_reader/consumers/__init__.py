"""Readers known by a name, what is kept for them, and the old versions that nothing needs any more."""
