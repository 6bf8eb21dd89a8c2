"""MiniGrid's numbers for objects, colours, doors and directions."""

import jax
import jax.numpy as jnp
import numpy as np

OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
UNSEEN, EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA, AGENT = range(11)

COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)

OPEN, CLOSED, LOCKED = range(3)  # states of a door

STEPS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])  # [dx, dy] of each direction: right, down, left, up
UPWARDS = 3  # the direction


def direction_vector(direction: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(dx, dy), i32 in the shape of `direction`: one step in this direction."""
    dx = (direction == 0).astype(jnp.int32) - (direction == 2).astype(jnp.int32)
    dy = (direction == 1).astype(jnp.int32) - (direction == 3).astype(jnp.int32)
    return dx, dy
