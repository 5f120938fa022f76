"""Which proposals conflict with which commits: Delta's rules as data, with evidence."""
