"""Curricula that choose or design the level of an episode."""
