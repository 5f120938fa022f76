"""The actions of a Delta log as values, and the lines that they are stored in."""
