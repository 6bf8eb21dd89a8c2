"""Evaluation: held-out tasks, the worst levels, statistics over seeds, and tables of the results."""
