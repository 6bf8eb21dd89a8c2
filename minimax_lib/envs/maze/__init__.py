"""The maze of the UED literature."""
