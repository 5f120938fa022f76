"""A partition: polls entries, queues them by table, takes each table's next step and reports outcomes."""
