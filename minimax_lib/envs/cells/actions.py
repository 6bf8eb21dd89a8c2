"""MiniGrid's seven actions."""

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
