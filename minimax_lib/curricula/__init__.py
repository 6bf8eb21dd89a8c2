"""Curricula: each proposes a batch of levels and observes the outcome."""

from minimax_lib.curricula import level_buffer, scores

__all__ = ["level_buffer", "scores"]
