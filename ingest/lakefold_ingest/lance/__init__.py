"""Lance tables as a writer needs them: data files, and the proposals that name these."""
