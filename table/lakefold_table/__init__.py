"""What a table is, how it changes, and where its versions are. No Kafka and no Spark here.

A table is a row of versions; each is one manifest, published once under its own name and never changed. An
entry of the log proposes a change (`entry`); the format decides what it means for the newest version
(`format` is the seam, `lance` the format); what a version remembers of the log travels in it as marks
(`marks`); a version exists when its put-if-not-exists has succeeded (`versions`, on a store of `storage`).
The rules are pure; only the stores do IO.
"""
