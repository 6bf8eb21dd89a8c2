"""Runners: a curriculum, students and an environment as pure `init` and `step`, and what wraps them."""
