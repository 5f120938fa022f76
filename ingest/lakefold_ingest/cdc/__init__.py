"""Change events of other systems: what they say about which rows, and which event counts for each key.

`change_format` describes an envelope as data. `events` and `debezium` read the envelopes into columns, and
`json_events` those that are JSON. `last_changes` keeps the last event of each key. All of it is computed on
whole columns. `operations/apply_changes.py` makes one proposal of what is left.
"""
