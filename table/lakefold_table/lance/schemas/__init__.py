"""Schemas: field ids and what they mean, what the files of a fragment must hold, Arrow and back."""
