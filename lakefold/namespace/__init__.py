"""A catalog for clients that know nothing of Lakefold: a Lance Namespace whose commits go through the log.

`names` maps the ids of namespaces and tables to folders below a root. `namespace` answers the operations of
the interface; one that changes a table becomes a proposal: `commits` sends the transaction that a client
staged as a version, and the client gets exactly that version, or a conflict. `rest` serves the
same over HTTP by the routes of `routes`, for `lakefold catalog`; `failures` says which error of the
interface each of ours is.
"""
