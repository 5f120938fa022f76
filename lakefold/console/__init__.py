"""What the command line has in common: settings as flags, output, logs and secrets."""
