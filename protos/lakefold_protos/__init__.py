"""What two processes must agree on: the messages of a Lance table and of the commit log.

The `.proto` files beside the generated modules are the source; `protos/generate.py` makes the rest.
"""
