"""Everything in which an agent acts: rollouts to learn from, whole episodes and games, and schedules of rollouts."""
