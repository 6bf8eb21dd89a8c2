"""The host's side of a run: its loop, its folder and files, its signals and its progress line."""
