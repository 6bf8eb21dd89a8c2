"""The environments as Gymnasium's and gymnax's: the spaces, their checkers, and in lockstep with the originals."""

import dataclasses
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import minimax_lib
from minimax_lib.envs import spaces as own
from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.spaces import ACTION_MASK
from minimax_lib.portable import export

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402
from gymnasium.utils.passive_env_checker import env_render_passive_checker  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers.vector import RecordEpisodeStatistics  # noqa: E402

from minimax_lib.portable.gymnasium_spaces import gymnasium_space  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Countdown(Environment):
    """Ends after as many steps as the level says, or is cut off. An action of many parts, and a mask.

    The last step pays the level. At the limit it is cut off, with both at once where the level is the limit.
    """

    max_steps: int = 4
    action_space = own.Dict((("pick", own.MultiDiscrete((3, 2))), ("push", own.Box(-1.0, 1.0, (2,)))))
    observation_space = own.Dict(
        (
            ("left", own.Discrete(8)),
            ("last", own.MultiDiscrete((3, 2))),
            ("noise", own.Box(0.0, float("inf"), (2,))),
            (ACTION_MASK, own.Dict((("pick", own.Box(0, 1, (5,), "bool")),))),
        )
    )

    def sample_level(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 1, 7, jnp.int32)

    def reset(self, key: jax.Array, level: jax.Array) -> tuple[dict, TimeStep]:
        state = {"level": level, "time": jnp.zeros((), jnp.int32)}
        return state, opening(self._obs(key, state, jnp.zeros(2, jnp.int32)), 0.0, {"pushed": 0.0})

    def step(self, key: jax.Array, state: dict, action: dict) -> tuple[dict, TimeStep]:
        state = state | {"time": state["time"] + 1}
        over = state["time"] >= state["level"]
        reward = jnp.where(over, state["level"], 0) + 0.5 * action["push"].sum()
        obs = self._obs(key, state, action["pick"])
        progress, facts = state["time"] / state["level"], {"pushed": action["push"].sum()}
        return state, transition(obs, reward, over, state["time"] >= self.max_steps, progress, facts)

    def _obs(self, key: jax.Array, state: dict, last: jax.Array) -> dict:
        left = jnp.maximum(state["level"] - state["time"], 0)
        mask = jnp.ones(5, bool).at[state["time"] % 3].set(False)
        return {"left": left, "last": last, "noise": jax.random.uniform(key, (2,)), ACTION_MASK: {"pick": mask}}

    def get_level(self, state: dict) -> jax.Array:
        return state["level"]

    def level_metrics(self, level: jax.Array) -> dict:
        return {}


MAZE = minimax_lib.make_env("AMaze", height=2, width=2, n_walls=1, max_steps=5)
ENVS = {
    "maze": MAZE,
    "pendulum": minimax_lib.make_env("Pendulum", max_steps=5, hold_steps=2),
    "countdown": Countdown(),
}


def deep(*case):
    return pytest.param(*case, marks=pytest.mark.deep)


each = pytest.mark.parametrize("env", [ENVS["maze"], deep(ENVS["pendulum"]), ENVS["countdown"]], ids=ENVS.keys())


def same(one, other, where="") -> None:
    """Fails where two nested results differ, in a number or in a type."""
    assert type(one) is type(other), f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, tuple):
        for i, (x, y) in enumerate(zip(one, other, strict=True)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            same(one[name], other[name], f"{where}/{name}")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype == object:
            for i, (x, y) in enumerate(zip(one, other, strict=True)):
                same(x, y, f"{where}[{i}]")
        else:
            np.testing.assert_array_equal(one, other, where)
    else:
        assert one == other, where


# ------------------------------------------------------------------------------------------------ Gymnasium, one


def test_spaces_are_mapped_exactly():
    mapped = gymnasium_space(Countdown().observation_space)
    assert mapped["left"] == gymnasium.spaces.Discrete(8)
    assert mapped["last"] == gymnasium.spaces.MultiDiscrete([3, 2])
    assert mapped["noise"] == gymnasium.spaces.Box(0.0, np.inf, (2,), np.float32)
    assert mapped[ACTION_MASK]["pick"] == gymnasium.spaces.MultiBinary((5,))
    image = gymnasium_space(MAZE.observation_space)["image"]
    assert image == gymnasium.spaces.Box(0, 10, (5, 5, 3), np.uint8)


def test_an_action_mask_is_what_gymnasium_samples_with():
    masked = own.Dict((("x", own.Discrete(2)), (ACTION_MASK, own.Box(0, 1, (3,), "bool"))))
    from minimax_lib.portable.gymnasium_spaces import to_gymnasium

    seen = to_gymnasium(gymnasium_space(masked), {"x": jnp.int32(1), ACTION_MASK: jnp.array([False, True, False])})
    assert gymnasium.spaces.Discrete(3).sample(mask=seen[ACTION_MASK]) == 1


@each
def test_gymnasiums_checker_passes(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What Gymnasium only advises: bounds that are infinite, and environments that it can make by name.
        for advice in (".*infinity.*", ".*spec.*"):
            warnings.filterwarnings("ignore", advice)
        check_env(export.gymnasium_env(env))


@each
def test_an_episode_is_that_of_the_environment(env):
    """The same level and keys, step by step, up to the end; each kind of end is the environment's."""
    game = export.gymnasium_env(env)
    game.action_space.seed(0)
    step, reset, ends = jax.jit(env.step), jax.jit(env.reset), set()
    for seed in range(12):
        obs, info = game.reset(seed=seed)
        state, earned, done = game._row.state, 0.0, False
        same_tree(obs, reset(jax.random.fold_in(key_of(game), 0), game.level)[1].obs)
        assert info["solved"] is False
        while not done:
            action, key = game.action_space.sample(), jax.random.fold_in(key_of(game), game._row.time + 1)
            state, ts = step(key, state, jax.tree.map(small, action))
            obs, reward, terminated, truncated, info = game.step(action)
            same_tree(obs, ts.obs)
            same_tree(game._row.state, state)
            earned, done = earned + reward, terminated or truncated
            assert (reward, terminated, truncated) == (float(ts.reward), bool(ts.terminated), bool(ts.truncated))
            assert info["facts"] == {name: float(fact) for name, fact in ts.facts.items()}
        assert info["solved"] is (info["progress"] >= 1)
        if ts.progress is None:
            assert info["progress"] == float(terminated and earned > 0)
        ends.add((terminated, truncated))
    assert len(ends) > 1 or env is ENVS["pendulum"]  # which always lasts to its limit


def small(x):
    return jnp.asarray(x, jnp.int32 if np.issubdtype(np.asarray(x).dtype, np.integer) else jnp.float32)


def key_of(game) -> jax.Array:
    """The key that an episode's steps are drawn with."""
    return episode_key(game._row.seed, game._row.n_episodes)


@jax.jit
def episode_key(seed, n_episodes):
    return jax.random.split(jax.random.fold_in(seed, n_episodes))[1]


def same_tree(one, other) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


level_of_maze = jax.jit(MAZE.sample_level)


def test_the_level_is_chosen_by_an_option():
    game = export.gymnasium_env(MAZE)
    level = jax.device_get(level_of_maze(jax.random.key(5)))
    game.reset(seed=0, options={"level": level})
    same_tree(game.level, level)
    game.reset()
    assert any((x != y).any() for x, y in zip(jax.tree.leaves(game.level), jax.tree.leaves(level), strict=True))
    with pytest.raises(ValueError, match=r"unknown option of reset 'levle': .*did you mean 'level'"):
        game.reset(options={"levle": level})
    with pytest.raises(ValueError, match=r"the level is Level\(wall_map bool\[3, 2\]"):
        game.reset(options={"level": dataclasses.replace(level, wall_map=np.zeros((3, 2), bool))})


def test_levels_may_come_from_a_function():
    level = level_of_maze(jax.random.key(5))
    game = export.gymnasium_env(MAZE, sample_level=Always(5))
    for _ in range(2):
        game.reset()
        same_tree(game.level, level)


@dataclasses.dataclass(frozen=True)
class Always:
    seed: int

    def __call__(self, key):
        return MAZE.sample_level(jax.random.key(self.seed))


def test_an_episode_is_drawn():
    game = export.gymnasium_env(MAZE, render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded):
        game.render()
    game.reset(seed=3)
    env_render_passive_checker(game)
    before = game.render()
    for _ in range(4):  # where it can go, it goes
        game.step(2)
        game.step(1)
    assert game.render().shape == before.shape
    assert (game.render() != before).any()
    game.reset(seed=3)
    np.testing.assert_array_equal(game.render(), before)


def test_what_cannot_be_is_said():
    with pytest.raises(gymnasium.error.ResetNeeded):
        export.gymnasium_env(MAZE).step(0)
    with pytest.raises(ValueError, match="unknown render_mode of AMaze 'human': choose from rgb_array"):
        export.gymnasium_env(MAZE, render_mode="human")
    with pytest.raises(ValueError, match="unknown render_mode of Countdown 'rgb_array': there is none"):
        export.gymnasium_env(Countdown(), render_mode="rgb_array")
    with pytest.raises(ValueError, match=r"unknown autoreset_mode 'samestep': .*did you mean 'SameStep'"):
        export.gymnasium_vector_env(MAZE, 2, autoreset_mode="samestep")
    with pytest.raises(ValueError, match="num_envs is 0: it must be at least 1"):
        export.gymnasium_vector_env(MAZE, 0)


# ------------------------------------------------------------------------------------------------ Gymnasium, many


@pytest.mark.parametrize(
    ("name", "mode"),
    [case if case[0] == "countdown" else deep(*case) for case in itertools.product(ENVS, AutoresetMode)],
)
def test_the_vector_environment_is_gymnasiums_own_of_single_ones(name, mode):
    """Everything that is returned, with its types: observations, ends, last observations, infos, over many episodes."""
    env, n = ENVS[name], 3
    ours = export.gymnasium_vector_env(env, n, autoreset_mode=mode.value)
    theirs = SyncVectorEnv([lambda: export.gymnasium_env(env)] * n, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is mode
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    same(ours.reset(seed=7), theirs.reset(seed=7), "reset")
    theirs.action_space.seed(0)
    n_ended = 0
    for t in range(14):
        actions = theirs.action_space.sample()
        one, other = ours.step(actions), theirs.step(actions)
        for name, x, y in zip(("obs", "reward", "terminated", "truncated", "infos"), one, other, strict=True):
            same(x, y, f"{name} of step {t}")
        assert one[0] in ours.observation_space
        ended = one[2] | one[3]
        n_ended += ended.sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            with pytest.raises(gymnasium.error.ResetNeeded):
                ours.step(actions)
            both = [envs.reset(options={"reset_mask": ended}) for envs in (ours, theirs)]
            same(*both, f"reset after step {t}")
    assert n_ended >= 2 * n  # each row more than once, on the whole
    same(ours.reset(), theirs.reset(), "reset without a seed")


def test_a_wrapper_of_gymnasium_counts_the_same_returns():
    """In both modes: the step that opens an episode in NextStep is not a step of it."""
    counted = {}
    for mode in ("SameStep", "NextStep"):
        envs = RecordEpisodeStatistics(export.gymnasium_vector_env(Countdown(), 2, autoreset_mode=mode))
        envs.reset(seed=1)
        counted[mode] = []
        for _ in range(12):
            action = {"pick": np.zeros((2, 2), int), "push": np.full((2, 2), 0.25, np.float32)}
            infos = envs.step(action)[4]
            if "episode" in infos:
                for i in np.flatnonzero(infos["_episode"]):
                    counted[mode].append((int(i), float(infos["episode"]["r"][i]), int(infos["episode"]["l"][i])))
    first = {mode: {i: (r, steps) for i, r, steps in reversed(found)} for mode, found in counted.items()}
    assert first["SameStep"] == first["NextStep"]
    assert len(counted["SameStep"]) >= len(counted["NextStep"]) >= 4


def test_levels_of_all_rows_are_chosen_by_an_option():
    envs = export.gymnasium_vector_env(Countdown(), 3)
    envs.reset(options={"levels": np.array([1, 3, 2], np.int32)})
    assert envs.levels.tolist() == [1, 3, 2]
    none = {"pick": np.zeros((3, 2), int), "push": np.zeros((3, 2), np.float32)}
    _, rewards, terminated, _, infos = envs.step(none)
    assert rewards.tolist() == [1.0, 0.0, 0.0]
    assert terminated.tolist() == [True, False, False]
    assert infos["final_obs"][0]["left"] == 0
    assert infos["final_info"]["solved"].tolist() == [True, False, False]
    with pytest.raises(ValueError, match=r"the level is int32\[2\]: it must be int32\[3\]"):
        envs.reset(options={"levels": np.array([1, 3], np.int32)})


@pytest.mark.deep
def test_stepping_compiles_once():
    from minimax_lib.portable.gymnasium_vector import _step

    before = _step._cache_size()
    for _ in range(2):
        envs = export.gymnasium_vector_env(dataclasses.replace(MAZE, max_steps=3), 2)
        envs.reset(seed=0)
        for _ in range(8):
            envs.step(envs.action_space.sample())
        envs.reset(options={"levels": envs.levels})
        envs.step(envs.action_space.sample())
    assert _step._cache_size() == before + 1


# ------------------------------------------------------------------------------------------------ gymnax


@pytest.mark.parametrize("env", [MAZE, deep(ENVS["pendulum"])], ids=["maze", "pendulum"])
def test_gymnaxs_calls_are_the_environment(env):
    """Step by step with the original, through ends, restarts on the same level, and last observations."""
    pytest.importorskip("gymnax")
    game = export.gymnax_env(env)
    level = jax.jit(env.sample_level)(jax.random.key(3))
    params = game.default_params.replace(level=level)
    obs, state = game.reset(jax.random.key(0), params)
    step, reset, n_ended = jax.jit(env.step), jax.jit(env.reset), 0
    inner, ts = reset(jax.random.split(jax.random.key(0))[1], level)

    @jax.jit
    def drawn(t):
        """(key of a step, action, keys that gymnax makes of the key for the step and for a reset after it)."""
        key = jax.random.fold_in(jax.random.key(1), t)
        k_step, k_reset = jax.random.split(key)
        return key, env.action_space.sample(key), k_step, jax.random.split(k_reset)[1]

    same_tree(obs, ts.obs)
    for t in range(12):
        key, action, k_step, k_reset = drawn(t)
        obs, state, reward, terminated, truncated, info = game.step(key, state, action, params)
        inner, ts = step(k_step, inner, action)
        same_tree((reward, terminated, truncated), (ts.reward, ts.terminated, ts.truncated))
        same_tree(info["final_observation"], ts.obs)
        same_tree(info["facts"], ts.facts)
        assert info["discount"] == 1 - ts.terminated
        if ts.done:
            n_ended += 1
            inner, ts = reset(k_reset, level)
        same_tree(obs, ts.obs)
        same_tree(state.env, inner)
        assert game.observation_space(params).__class__.__name__ == type(env.observation_space).__name__
    assert n_ended >= 2


def test_gymnaxs_levels_limits_and_wrappers():
    pytest.importorskip("gymnax")
    from gymnax.wrappers.purerl import LogWrapper

    assert export.gymnax_env(MAZE) == export.gymnax_env(MAZE)  # and so `step` is compiled once
    game = export.gymnax_env(MAZE, sample_level=MAZE.sample_level)
    params = game.default_params.replace(max_steps_in_episode=2)
    logged = LogWrapper(game)
    keys = jax.random.split(jax.random.key(0), 4)
    _, state = jax.jit(jax.vmap(logged.reset, (0, None)))(keys, params)
    first = state.env_state.env.level
    assert len(np.unique(np.asarray(first.agent_pos), axis=0)) > 1

    @jax.jit
    def turned(keys, state, params, t):
        """After a turn on the spot."""
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, t)
        return keys, jax.vmap(logged.step, (0, 0, 0, None))(keys, state, jnp.zeros(4, jnp.int32), params)

    for t in range(1, 5):
        keys, (_, state, *_, info) = turned(keys, state, params, t)
        assert info["returned_episode"].all() == (t % 2 == 0)  # the lower limit of the parameters
    assert info["returned_episode_lengths"].tolist() == [2, 2, 2, 2]
    assert (np.asarray(state.env_state.env.level.agent_pos) != np.asarray(first.agent_pos)).any()


def test_gymnax_has_no_actions_of_several_integers():
    pytest.importorskip("gymnax")
    with pytest.raises(ValueError, match="gymnax has no MultiDiscrete"):
        export.gymnax_env(Countdown())
