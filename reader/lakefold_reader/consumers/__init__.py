"""Named readers, the versions that are kept for them, and the removal of versions that nothing needs."""
