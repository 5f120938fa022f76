"""Which log a table follows: adopt, rebind and detach it, or drop it with a note of its position."""
