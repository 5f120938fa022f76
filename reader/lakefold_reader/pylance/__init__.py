"""What every use of pylance needs. It evaluates SQL and parses JSON in memory, for tables of any format."""
