"""The messages of a Lance table, as pylance 14 writes them: manifest, index section, transaction, row ids."""
