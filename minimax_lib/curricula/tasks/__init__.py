"""Task curricula as curricula of the compiled loop: what is chosen is an entry of a list, or a point of a box."""

from minimax_lib.curricula.tasks.listed import Tasks

__all__ = ["Tasks"]
