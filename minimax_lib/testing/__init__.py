"""Checks for what others write: environments, curricula, networks."""
