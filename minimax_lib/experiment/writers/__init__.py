"""Where the measurements of a run go."""
