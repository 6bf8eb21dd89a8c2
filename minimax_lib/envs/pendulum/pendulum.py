"""`Pendulum`: swing a pole up and balance it, with a motor that may be too weak to lift it at once."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.cells.settings import check_int
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.pendulum.physics import (
    PARAMETERS,
    Physics,
    Range,
    acceleration,
    check_range,
    fault_in,
    stacked,
    unstacked,
    within,
    wrapped_angle,
)
from minimax_lib.envs.spaces import Box, Dict, Space
from minimax_lib.settings import keep_tuple

MOST_SUBSTEPS = 100  # each one is compiled separately


class PendulumState(struct.PyTreeNode):
    """An episode. `level` is the level that `reset` was given, unchanged."""

    level: Physics
    angle: jax.Array  # f32[], rad in [-pi, pi), 0 is upright
    speed: jax.Array  # f32[], rad/s
    time: jax.Array  # i32[], steps taken
    held: jax.Array  # i32[], number of latest steps in a row with an upright pole
    upright: jax.Array  # i32[], number of all steps with an upright pole


@dataclasses.dataclass(frozen=True)
class Pendulum(Environment):
    """Swing-up of a pendulum. The level is its physics, which the agent has to find out from the motion.

    The motion is that of Gymnasium's Pendulum-v1. (Its rod moves like a point mass of 3/4 kg at 2/3 m.) The largest
    return is 1. One half is paid for an upright pole (within `tolerance`), in equal parts for every step. The other
    half is paid for 1 - (angle^2 + 0.1 speed^2 + 0.001 torque^2) / pi^2. This is Gymnasium's reward with another
    constant and another scale. A pole that is always upright returns 1, and one that hangs still returns 0.

    An episode is solved if the pole is upright in each of its last `hold_steps` steps.
    """

    mass: Range = (0.5, 1.5)
    """Lowest and highest mass of random levels, at the end of the pole, in kg."""
    length: Range = (0.5, 1.5)
    """Lowest and highest length of the pole, in m."""
    gravity: Range = (5.0, 15.0)
    """Lowest and highest gravity, in m/s^2."""
    damping: Range = (0.0, 0.3)
    """Lowest and highest friction: its torque for each rad/s, in N m s."""
    torque: Range = (2.0, 6.0)
    """Lowest and highest strength of the motor: its torque at an action of 1, in N m."""
    see_physics: bool = False
    """Show the level's parameters, as shares of the highest values of random levels."""
    start_spread: float = math.pi
    """Largest angle from hanging straight down at which an episode starts, at rest, in rad. pi: the whole circle."""
    tolerance: float = 0.3
    """Largest angle from upright at which the pole counts as upright, in rad."""
    hold_steps: int = 40
    """Number of last steps in which the pole must be upright for an episode to be solved."""
    max_steps: int = 200
    """Steps of an episode. Every episode has this length."""
    dt: float = 0.05
    """Seconds from one action to the next."""
    n_substeps: int = 4
    """Steps of the integrator (semi-implicit Euler) in the time dt."""
    max_speed: float = 12.0
    """Highest speed of the pole, in rad/s."""

    def __post_init__(self) -> None:
        for name in PARAMETERS:
            check_range(name, getattr(self, name))
            keep_tuple(self, name)
        for name, most in (("start_spread", math.pi), ("tolerance", math.pi), ("dt", 1.0), ("max_speed", math.inf)):
            value, least = getattr(self, name), 0 if name == "start_spread" else 1e-6
            if not (least <= value <= most and math.isfinite(value)):
                raise ValueError(f"{name}={value}: it must be finite, and between {least} and {most}")
        for name in ("hold_steps", "max_steps", "n_substeps"):
            check_int(name, getattr(self, name), 1)
        if self.n_substeps > MOST_SUBSTEPS:
            raise ValueError(f"n_substeps={self.n_substeps}: it must be at most {MOST_SUBSTEPS}")
        if self.hold_steps > self.max_steps:
            raise ValueError(f"hold_steps={self.hold_steps}: it must be at most max_steps, {self.max_steps}")

    @property
    def ranges(self) -> Physics:
        """The ranges of random levels: a `Range` for each parameter."""
        return Physics(**{name: getattr(self, name) for name in PARAMETERS})

    @property
    def observation_space(self) -> Space:
        """Cosine, sine, and the speed as a share of the highest. With `see_physics`, a Dict with the physics too."""
        motion = Box(-1, 1, (3,))
        if not self.see_physics:
            return motion
        return Dict((("motion", motion), ("physics", Box(0, math.inf, (len(PARAMETERS),)))))

    @property
    def action_space(self) -> Space:
        return Box(-1, 1, (1,))

    def sample_level(self, key: jax.Array) -> Physics:
        """A random level: every parameter is uniform in its range."""
        return within(self.ranges, unstacked(jax.random.uniform(key, (len(PARAMETERS),), jnp.float32)))

    @property
    def level_box(self) -> dict[str, Range]:
        """The ranges of the parameters that differ from level to level; see `Environment.level_at`."""
        ranges = {name: getattr(self, name) for name in PARAMETERS}
        return {name: (least, most) for name, (least, most) in ranges.items() if least < most}

    def level_at(self, key: jax.Array, point: jax.Array) -> Physics:
        """The pendulum whose parameters in `level_box` are those of `point`."""
        fixed = {name: jnp.asarray(getattr(self, name)[0], jnp.float32) for name in PARAMETERS}
        return Physics(**fixed | dict(zip(self.level_box, point, strict=True)))

    def fault_in(self, level: Physics) -> str:
        """See `Environment.fault_in`."""
        return fault_in(level)

    def reset(self, key: jax.Array, level: Physics) -> tuple[PendulumState, TimeStep]:
        """The start of an episode on `level`. The key is for the angle."""
        level = checked_at_reset(self, level)
        spread = jnp.float32(self.start_spread)
        angle = jnp.pi + jax.random.uniform(key, (), jnp.float32, -spread, spread)
        none = jnp.zeros((), jnp.int32)
        speed = jnp.zeros((), jnp.float32)
        state = PendulumState(level, wrapped_angle(angle), speed, time=none, held=none, upright=none)
        return state, opening(self.observe(state), self._progress(state), self._facts(state))

    def step(self, key: jax.Array, state: PendulumState, action: jax.Array) -> tuple[PendulumState, TimeStep]:
        """The result of `action` (f32[1]), a share of the motor's highest torque. Deterministic."""
        level, angle, speed = state.level, state.angle, state.speed
        torque = level.torque * jnp.clip(jnp.asarray(action, jnp.float32)[0], -1.0, 1.0)
        cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        for _ in range(self.n_substeps):
            speed += acceleration(level, angle, speed, torque) * (self.dt / self.n_substeps)
            speed = jnp.clip(speed, -self.max_speed, self.max_speed)
            angle += speed * (self.dt / self.n_substeps)
        angle = wrapped_angle(angle)
        is_upright = (jnp.abs(angle) <= self.tolerance).astype(jnp.int32)
        state = PendulumState(
            level=level,
            angle=angle,
            speed=speed,
            time=state.time + 1,
            held=(state.held + 1) * is_upright,
            upright=state.upright + is_upright,
        )
        # Near the top the squares are flat. Without a bonus for upright poles, an agent with a strong motor is content
        # to hold the pole at a small angle.
        reward = (0.5 * (1.0 - cost / jnp.pi**2) + 0.5 * is_upright) / self.max_steps
        limit = state.time >= self.max_steps
        obs, progress = self.observe(state), self._progress(state)
        return state, transition(obs, reward, jnp.zeros((), bool), limit, progress, self._facts(state))

    def observe(self, state: PendulumState) -> jax.Array | dict[str, jax.Array]:
        """What the agent sees in `state`."""
        motion = jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed / self.max_speed])
        if not self.see_physics:
            return motion
        most = jnp.array([getattr(self, name)[1] or 1.0 for name in PARAMETERS], jnp.float32)
        return {"motion": motion, "physics": stacked(state.level) / most}

    legend = "the pole's angle over time: it hangs at the top and bottom edges, and stands upright in the band"

    def draw_episodes(
        self, states: PendulumState, running: np.ndarray, captions: Sequence[str], columns: int
    ) -> np.ndarray:
        """The pole's angle over time; see `Environment.draw_episodes`."""
        from minimax_lib.envs.pendulum.render import draw_episodes  # needs pillow, which only pictures use

        return draw_episodes(states, running, captions, columns, self.tolerance, self.max_steps)

    def draw_state(self, state: PendulumState) -> np.ndarray:
        """The pole; see `Environment.draw_state`."""
        from minimax_lib.envs.pendulum.render import draw_state

        return draw_state(state, self.tolerance)

    def level_metrics(self, level: Physics) -> dict[str, jax.Array]:
        """The parameters, and `strength`: the motor's torque divided by the torque that holds the pole horizontal."""
        weight = level.mass * level.gravity * level.length
        return {**{name: getattr(level, name) for name in PARAMETERS}, "strength": level.torque / weight}

    def _progress(self, state: PendulumState) -> jax.Array:
        return jnp.minimum(state.held.astype(jnp.float32) / self.hold_steps, 1.0)

    def _facts(self, state: PendulumState) -> dict[str, jax.Array]:
        return {"upright": state.upright.astype(jnp.float32) / self.max_steps}
