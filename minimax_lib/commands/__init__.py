"""The commands of the package: each reads its flags, refuses what makes no sense, and does the rest elsewhere."""
