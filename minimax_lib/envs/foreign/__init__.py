"""Environments of other libraries. None of these libraries is imported before one of its environments is used."""
