"""What differs between two versions of a table: named, compared by files, equal rows set aside."""
