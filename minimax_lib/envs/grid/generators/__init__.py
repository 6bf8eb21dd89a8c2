"""Families of random levels of the object world."""
