"""Sweeps: many trainings from one file, chosen by Optuna, each in its own process."""
