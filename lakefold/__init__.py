"""The front door: the names a user calls, and the command line.

A table is opened and followed through `lakefold`, written from Spark through `lakefold.spark`, and operated
by `lakefold VERB`. The parts behind the door are packages of their own (`lakefold_table`, `lakefold_log`,
…); this package wires them and adds nothing to what they mean. Names are loaded when they are first used, so
that a reader needs neither Kafka nor Spark.
"""
