"""What a table is, how it changes, and where its versions are. No Kafka and no Spark here.

A table is a sequence of versions. Each is one manifest or commit, published once under its own name and never
changed. An entry of the log proposes a change (`entry`). The table's format decides what it means for the
newest version (`format` is the seam; `lance` and `delta` are formats). What a version remembers of the log is
stored in it as marks (`marks`). A version exists once its put-if-not-exists has succeeded (`versions`, on a
store of `storage`). The rules are pure; only the stores do IO.
"""
