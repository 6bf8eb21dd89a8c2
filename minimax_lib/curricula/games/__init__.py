"""Curricula of games: which level, and against whom."""
