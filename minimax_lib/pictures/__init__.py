"""Pictures of runs, from their folders alone. Nothing in a folder is changed, and nothing that it names is imported."""
