"""Environments of other libraries. A library is imported only when one of its environments is used."""
