"""Environments: one instance each; `batch` vectorises them."""
