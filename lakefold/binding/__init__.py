"""The verbs that change which partition a table is bound to: adopt, rebind, detach, and drop."""
