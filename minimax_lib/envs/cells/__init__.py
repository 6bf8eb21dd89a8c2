"""What the worlds made of cells share: MiniGrid's numbers, sight, floods, and drawing."""
