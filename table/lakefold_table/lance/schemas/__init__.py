"""Schemas: the meaning of field ids, the files that fragments must have, conversion to and from Arrow."""
