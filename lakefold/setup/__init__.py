"""The verbs that set up a machine: start and stop a local broker, and show what runs and lies there."""
