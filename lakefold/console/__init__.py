"""What all verbs share: settings as options, output, logs, and how secrets are hidden."""
