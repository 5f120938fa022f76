"""Lance tables as the reader reads them: the answer to `lakefold_reader.format` for tables of Lance."""
