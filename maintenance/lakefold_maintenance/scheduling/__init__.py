"""When each table is maintained, and in which order: a round compacts and cleans up by the policy."""
