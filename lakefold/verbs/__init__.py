"""One module for each verb of the command line, so that a verb loads only what it needs.

`lakefold.cli` names them; each module offers a click command called `command`.
"""
