"""Gymnasium's BipedalWalker (Box2D) beside ours: the same random numbers, and states carried over."""

import numpy as np

from minimax_lib.envs.walker.body import LEVERS, TOTAL, Body


class Table:
    """A random generator for Gymnasium's terrain that reads from `shares` (f32[200, 6], as `make_terrain` does)."""

    def __init__(self, world, shares):
        self.world, self.shares = world, shares

    def share(self, which):
        return self.shares[len(self.world.terrain_x) - 1][which]

    def uniform(self, low, high):
        if (low, high) == (-5, 5):  # the push at the start
            return 0.0
        # Whatever else is drawn: only bumps are, before the last point is reached. Clouds follow.
        return low + (high - low) * float(self.share(0))

    def random(self):
        return float(self.share(2))

    def integers(self, low, high):
        which = {(5.0, 10): 4, (1, 4): 5, (4, 5): 1}.get((low, high), 1)
        return int(low) + int(np.floor(self.share(which) * np.float32(high - low)))


def parts(theirs):
    """Hull, leg 1, lower leg 1, leg 2, lower leg 2."""
    return [theirs.hull, *theirs.legs]


def body_of(theirs):
    """The body of Gymnasium's walker. Gaps in its joints are closed, so that the centre of mass stays."""
    bodies = parts(theirs)
    angle = np.array([b.angle for b in bodies], np.float32)
    masses = np.array([b.mass for b in bodies])
    centre = (masses[:, None] * np.array([b.worldCenter for b in bodies])).sum(axis=0) / masses.sum()
    c, s = np.cos(angle), np.sin(angle)
    x, y = LEVERS[:, 0], LEVERS[:, 1]
    hips = centre - np.array([(c * x - s * y).sum(), (s * x + c * y).sum()]) / TOTAL
    velocity = np.array([b.linearVelocity for b in bodies], np.float32)
    spin = np.array([b.angularVelocity for b in bodies], np.float32)
    return Body(hips.astype(np.float32), angle, velocity, spin)
