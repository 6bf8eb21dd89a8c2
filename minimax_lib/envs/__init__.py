"""Environments: one instance each; `batch` vectorises them."""

from minimax_lib.envs import maze

__all__ = ["maze"]
