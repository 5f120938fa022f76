"""`create` and `alter`: tables before their first rows, and what is changed of them besides rows."""
