"""A run on disk: its folder, checkpoints, archive, tables, and how to load them. No loop, and nothing is drawn."""
