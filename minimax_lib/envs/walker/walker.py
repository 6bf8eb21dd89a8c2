"""`BipedalWalker`: a robot with two legs walks to the right over rough ground, pits, stumps and stairs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.cells.settings import check_int
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.spaces import Box, Space
from minimax_lib.envs.walker.body import FORCE, TORQUE, Body, hull_position, start
from minimax_lib.envs.walker.contacts import SKIN, SWEPT, find_contacts, hull_gap, look_around, lower_legs_on
from minimax_lib.envs.walker.level import NUMBERS, PRESETS, Level, Preset, draw_seed, fault_in, make_level
from minimax_lib.envs.walker.metrics import level_metrics
from minimax_lib.envs.walker.physics import Impulses, advance, no_impulses
from minimax_lib.envs.walker.terrain import N_POINTS, PAD, SCALE, STEP, Terrain, draw_shares, make_terrain
from minimax_lib.envs.walker.view import N_SEEN, observe

START = PAD / 2 * STEP  # m, where the hull begins
END = (N_POINTS - 10) * STEP  # m, behind it the world is crossed
COST = 0.00035 * TORQUE  # of a motor at full strength, for each step
FALLEN = -100.0
MOST_ROUNDS = 200
SOLVED = 230.0  # dcd counts an episode as solved above this return


class EnvState(struct.PyTreeNode):
    """An episode. `level` is the level that `reset` was given, unchanged."""

    level: Level
    terrain: Terrain
    body: Body
    impulses: Impulses
    touching: jax.Array  # bool[2], whether each lower leg touches the ground, as the agent sees it
    touched: jax.Array  # u32[2, 2], what each lower leg touched when the last step began: `lower_legs_on`
    hull_near: jax.Array  # bool[], the hull is so near that it touches in the next step
    time: jax.Array  # i32[], steps taken
    total: jax.Array  # f32[], the return so far


class Pose(struct.PyTreeNode):
    """What pictures need of a state: its terrain can be drawn from the level again."""

    level: Level
    body: Body
    total: jax.Array


@dataclasses.dataclass(frozen=True)
class BipedalWalker(Environment):
    """A robot walks to the right. The level is the ground: eight numbers, and a seed from which it is drawn.

    Body, motors, observations and rewards are those of Gymnasium's BipedalWalker-v3. The terrain is that of dcd, with
    which Parker-Holder et al. (2022) trained. The motion is that of Box2D up to its rounding and its gaps in joints.

    Walking to the end pays about 300. Motors cost a little. A fall pays -100 and ends the episode. An episode is
    solved if its return is above 230, as in dcd. The fact `finish` says whether the end was reached.
    """

    levels: Preset = "full"
    """Range of random levels: full (all that there is), easy (what ACCEL starts from), poet and poet_easy (without
    stairs), or basic (a little rough, without obstacles)."""
    max_steps: int = 2000
    """Steps after which an episode is cut off."""
    n_rounds: int = 10
    """Rounds of the solver over motors, limits and contacts in a step. More of them are closer to Box2D, and slower."""

    resets_at_once = 4  # a terrain costs more than a step, and few episodes end together

    def __post_init__(self) -> None:
        if self.levels not in PRESETS:
            raise ValueError(f"levels={self.levels!r}: it must be one of {', '.join(PRESETS)}")
        check_int("max_steps", self.max_steps, 1)
        check_int("n_rounds", self.n_rounds, 1, MOST_ROUNDS)

    @property
    def observation_space(self) -> Space:
        return Box(-np.inf, np.inf, (N_SEEN,))

    @property
    def action_space(self) -> Space:
        """The motors of hip 1, knee 1, hip 2, knee 2: the sign is the direction, the size the strength."""
        return Box(-1, 1, (4,))

    @property
    def ranges(self) -> np.ndarray:
        """f32[8, 2], the lowest and the highest of each number of random levels."""
        return PRESETS[self.levels]

    def sample_level(self, key: jax.Array) -> Level:
        """A random level: every number is uniform in its range."""
        k_numbers, k_seed = jax.random.split(key)
        low, high = jnp.asarray(self.ranges[:, 0]), jnp.asarray(self.ranges[:, 1])
        share = jax.random.uniform(k_numbers, (len(NUMBERS),), jnp.float32)
        return make_level(jnp.clip(low + (high - low) * share, low, high), draw_seed(k_seed))

    @property
    def level_box(self) -> dict[str, tuple[float, float]]:
        """The ranges of the numbers that differ from level to level; see `Environment.level_at`."""
        rows = zip(NUMBERS, self.ranges, strict=True)
        return {name: (float(low), float(high)) for name, (low, high) in rows if low < high}

    def level_at(self, key: jax.Array, point: jax.Array) -> Level:
        """The level with these numbers. The key is for the seed."""
        named = dict(zip(self.level_box, point, strict=True))
        rows = zip(NUMBERS, self.ranges, strict=True)
        return make_level(jnp.stack([named.get(name, jnp.float32(row[0])) for name, row in rows]), draw_seed(key))

    def fault_in(self, level: Level) -> str:
        """See `Environment.fault_in`."""
        return fault_in(level)

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, TimeStep]:
        """The start of an episode on `level`. The key is for a small push."""
        level = checked_at_reset(self, level)
        terrain = make_terrain(level, draw_shares(level.seed))
        body = start(jax.random.uniform(key, (), jnp.float32, -FORCE, FORCE))
        near = look_around(terrain, body)
        state = EnvState(
            level=level,
            terrain=terrain,
            body=body,
            impulses=no_impulses(),
            touching=jnp.ones(2, bool),
            touched=lower_legs_on(near, body),
            hull_near=jnp.zeros((), bool),
            time=jnp.zeros((), jnp.int32),
            total=jnp.zeros((), jnp.float32),
        )
        return state, opening(observe(near, body, state.touching), _progress(state), _facts(state))

    def step(self, key: jax.Array, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]:
        """The result of `action` (f32[4]). Deterministic."""
        power = jnp.clip(jnp.asarray(action, jnp.float32), -1.0, 1.0)
        near = look_around(state.terrain, state.body)
        contacts = find_contacts(near, state.body)
        body, impulses, gaps = advance(state.body, state.impulses, contacts, power, self.n_rounds)
        hull, x = hull_gap(near, body), hull_position(body)[0]
        # Box2D notices a contact where a step begins, and a fast one also within it.
        lost = state.hull_near | (hull <= SWEPT) | (x < 0)
        gained = _worth(body) - _worth(state.body) - COST * jnp.sum(jnp.abs(power))
        reward = jnp.where(lost, FALLEN, gained)
        touched = lower_legs_on(near, state.body)
        touching = _touching(state, touched) | jnp.any((contacts.gap > SKIN) & (gaps <= SWEPT), axis=1)[1::2]
        after = EnvState(
            level=state.level,
            terrain=state.terrain,
            body=body,
            impulses=impulses,
            touching=touching,
            touched=touched,
            hull_near=hull <= SKIN,
            time=state.time + 1,
            total=state.total + reward,
        )
        finish = (x > END) & ~lost
        obs, limit = observe(near, body, touching), after.time >= self.max_steps
        return after, transition(obs, reward, lost | finish, limit, _progress(after), _facts(after, finish))

    def slim(self, state: EnvState) -> Pose:
        """What pictures need of `state`."""
        return Pose(state.level, state.body, state.total)

    legend = "the walker every second of its way, from pale to dark"

    def draw_episodes(self, states: Any, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """The whole way and the walker on it; see `Environment.draw_episodes`."""
        from minimax_lib.envs.walker.render import draw_episodes  # needs pillow, which only pictures use

        return draw_episodes(states, running, captions, columns)

    def draw_state(self, state: Any) -> np.ndarray:
        """The walker and the ground around it; see `Environment.draw_state`."""
        from minimax_lib.envs.walker.render import draw_state

        return draw_state(state)

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """The eight numbers."""
        return level_metrics(level)


def _worth(body: Body) -> jax.Array:
    """f32[]: 130 points for 30 m to the right, less for a hull that leans. Its change is the reward."""
    return 130 / SCALE * hull_position(body)[0] - 5.0 * jnp.abs(body.angle[0])


def _touching(state: EnvState, touched: jax.Array) -> jax.Array:
    """bool[2]: whether each lower leg touches the ground, as Gymnasium says.

    There, a contact that begins sets the flag and one that ends clears it, though others may go on.
    """
    begins, ends = (jnp.any(x != 0, axis=1) for x in (touched & ~state.touched, state.touched & ~touched))
    return (state.touching | begins) & ~ends


def _progress(state: EnvState) -> jax.Array:
    # Exactly 1 means solved.
    return jnp.where(state.total > SOLVED, 1.0, jnp.clip(state.total / SOLVED, 0.0, 0.999)).astype(jnp.float32)


def _facts(state: EnvState, finish: jax.Array | bool = False) -> dict[str, jax.Array]:
    way = (hull_position(state.body)[0] - START) / (END - START)
    return {"finish": jnp.asarray(finish, jnp.float32), "way": jnp.clip(way, 0.0, 1.0)}
