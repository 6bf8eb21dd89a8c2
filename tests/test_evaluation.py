"""Evaluation against plain Python loops and against environments whose win probabilities are known."""

import dataclasses

import chex
import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib import axes
from minimax_lib.envs.base import Environment, TimeStep
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.evaluation.held_out import EvalRunner, Evaluation, evaluation_keys
from minimax_lib.evaluation.robustness import RobustEvaluator, RobustProtocol, RobustResult, worst_levels
from minimax_lib.playing.episodes import alone, mode, smaller_batches

RIGHT, STAY = 0, 1


@struct.dataclass
class CorridorLevel:
    distance: jax.Array  # i32[], steps to the right that reach the goal
    limit: jax.Array  # i32[], the episode's time limit


@struct.dataclass
class CorridorState:
    level: CorridorLevel
    position: jax.Array  # i32[]
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Corridor(Environment):
    """Pays 1 - time / 100 at the goal, and 5 on every step after the end, which nobody should ever see."""

    max_steps: int = 12
    observation_space = Box(0, 100, (2,), "int32")
    action_space = Discrete(2)

    def sample_level(self, key):
        k_distance, k_limit = jax.random.split(key)
        return CorridorLevel(jax.random.randint(k_distance, (), 1, 12), jax.random.randint(k_limit, (), 1, 12))

    def reset(self, key, level):
        state = CorridorState(level=level, position=jnp.zeros((), jnp.int32), time=jnp.zeros((), jnp.int32))
        return state, self.emit(state, jnp.zeros((), jnp.float32))

    def step(self, key, state, action):
        over = self.emit(state, jnp.zeros((), jnp.float32)).done
        position = state.position + (action == RIGHT)
        state = state.replace(position=position, time=state.time + 1)
        won = position == state.level.distance
        reward = jnp.where(over, 5.0, jnp.where(won, 1.0 - state.time / 100.0, 0.0))
        return state, self.emit(state, reward.astype(jnp.float32))

    def emit(self, state, reward):
        obs = jnp.stack([state.position, state.time])
        terminated = state.position == state.level.distance
        return TimeStep(obs=obs, reward=reward, terminated=terminated, truncated=state.time >= state.level.limit)

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {}


@dataclasses.dataclass(frozen=True)
class Corridors:
    """One task per (distance, limit), and one of random levels."""

    env: Corridor = Corridor()
    fixed: tuple[tuple[int, int], ...] = ((3, 10), (10, 5), (5, 5), (12, 12), (1, 1))

    @property
    def names(self):
        return (*(f"{d}-{limit}" for d, limit in self.fixed), "random")

    def sample(self, key, n_episodes):
        fixed = np.array(self.fixed, np.int32)
        same = CorridorLevel(*(jnp.tile(fixed[:, i, None], (1, n_episodes)) for i in range(2)))
        drawn = jax.vmap(self.env.sample_level)(jax.random.split(key, n_episodes))
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), same, drawn)


@dataclasses.dataclass(frozen=True)
class Walker:
    """Goes right with a probability that is its parameter, and stays on its `rest`-th step of an episode.

    It counts steps in its memory alone, so it fails if that is not kept, or not cleared.
    """

    rest: int = 3

    def init_carry(self, shape):
        return jnp.full(shape, 1000, jnp.int32)  # nonsense unless cleared

    def policy(self, params, obs, carry, first):
        count = jnp.where(first, 0, carry) + 1
        right = jnp.where(count == self.rest, 0.0, params)
        probs = jnp.stack([right, 1 - right], axis=-1)
        return distrax.Categorical(probs=probs), jnp.zeros_like(right), count


def play_in_python(env, level, rest):
    """(return, length) of one episode of a Walker that always wants to go right: no jax control flow, no batch."""
    state, _ = env.reset(None, level)
    total, steps, done = 0.0, 0, False
    while not done:
        state, ts = env.step(None, state, STAY if steps + 1 == rest else RIGHT)
        total, steps, done = total + float(ts.reward), steps + 1, bool(ts.done)
    return total, steps


ALWAYS, SOMETIMES = jnp.ones((), jnp.float32), jnp.full((), 0.6, jnp.float32)


@pytest.fixture(scope="module")
def runner():
    return EvalRunner(Corridors(), Walker(), n_episodes=7)


@pytest.fixture(scope="module")
def evaluate(runner):
    return jax.jit(runner.evaluate)


def test_every_episode_is_the_one_that_a_plain_loop_plays(runner, evaluate):
    key = jax.random.key(0)
    result = evaluate(key, ALWAYS)
    levels = jax.device_get(jax.jit(lambda key: runner.held_out.sample(jax.random.split(key)[0], 7))(key))
    assert result.returns.shape == result.solved.shape == result.lengths.shape == (6, 7)
    for task in range(6):
        for episode in range(7):
            level = jax.tree.map(lambda x, i=(task, episode): x[i], levels)
            total, steps = play_in_python(Corridor(), level, rest=3)
            assert float(result.returns[task, episode]) == pytest.approx(total)
            assert int(result.lengths[task, episode]) == steps
            assert bool(result.solved[task, episode]) == (total > 0)


def test_levels_may_be_drawn_by_a_program_of_their_own(runner, evaluate):
    """Drawing and playing apart give what `evaluate` gives, for each seed; both are compiled once."""
    keys = evaluation_keys([5, 6])
    play = jax.jit(chex.assert_max_traces(runner.play, n=1))
    drawn = runner.draw(keys)
    for i in range(2):
        levels = jax.tree.map(lambda x, i=i: x[i], drawn)
        chex.assert_trees_all_equal(play(keys[i], SOMETIMES, levels), evaluate(keys[i], SOMETIMES))


def test_known_outcomes(evaluate):
    result = evaluate(jax.random.key(1), ALWAYS)
    # distance 3, one step of rest: 4 steps; 10 in 5 steps: no; 5 in 5 with a rest: no; 12 in 12 with a rest: no
    np.testing.assert_array_equal(result.lengths[:5, 0], [4, 5, 5, 12, 1])
    np.testing.assert_allclose(result.returns[:5, 0], [0.96, 0, 0, 0, 0.99], atol=1e-6)
    np.testing.assert_array_equal(result.solved[:5, 0], [True, False, False, False, True])


def test_an_episode_counts_once_however_short_it_is():
    """Solving probability of one coin flip, estimated over rows: no row is worth more than one episode."""
    held_out = Corridors(fixed=((1, 1), (1, 12)))
    result = jax.jit(EvalRunner(held_out, Walker(rest=0), 300).evaluate)(jax.random.key(2), SOMETIMES)
    assert result.solved[0].mean() == pytest.approx(0.6, abs=4 * np.sqrt(0.24 / 300))
    assert result.solved[1].mean() == pytest.approx(1.0, abs=0.01)
    assert set(np.unique(result.lengths[0])) == {1}
    assert result.lengths[1].mean() == pytest.approx(1 / 0.6, abs=0.25)


def test_greedy_ignores_the_key_and_sampling_does_not(evaluate):
    greedy = jax.jit(EvalRunner(Corridors(fixed=((3, 10), (5, 12))), Walker(), 50, mode).evaluate)
    lengths = [np.asarray(greedy(jax.random.key(seed), SOMETIMES).lengths)[:2] for seed in (0, 1)]
    np.testing.assert_array_equal(*lengths)
    assert (lengths[0] == [[4], [6]]).all()
    sampled = [np.asarray(evaluate(jax.random.key(seed), SOMETIMES).lengths)[[0, 3]] for seed in (0, 1)]
    assert (sampled[0] != sampled[1]).any()


def test_seeds_in_a_vmap_are_the_seeds_alone(runner, evaluate):
    params = np.array([1.0, 0.6, 0.0], np.float32)
    together = jax.device_get(
        jax.jit(jax.vmap(runner.evaluate, axis_name=axes.SEED))(evaluation_keys(range(3)), params)
    )
    assert together.returns.shape == (3, 6, 7)
    for i in range(3):
        alone = evaluate(evaluation_keys([i])[0], params[i])
        chex.assert_trees_all_equal(jax.tree.map(lambda x, i=i: x[i], together), alone)


def predicate_shape(function, *arguments):
    """Shape of what the while loop of `function` asks before every step."""
    equations = jax.make_jaxpr(function)(*arguments).eqns
    (loop,) = [equation for equation in equations if equation.primitive.name == "while"]
    return loop.params["cond_jaxpr"].out_avals[0].shape


def test_seeds_share_the_end_of_the_loop_so_that_no_state_is_selected_by_seed(runner):
    keys, params = evaluation_keys(range(3)), np.zeros(3, np.float32)
    assert predicate_shape(jax.vmap(runner.evaluate, axis_name=axes.SEED), keys, params) == ()
    assert predicate_shape(jax.vmap(runner.evaluate), keys, params) == (3,)  # what it is without the name


def test_the_loop_ends_when_all_rows_have_ended():
    """A suite whose limit is 2**30 steps is left after the 11 that its longest level takes."""
    endless = EvalRunner(Corridors(env=Corridor(max_steps=2**30), fixed=((3, 10), (10, 5))), Walker(), 3)
    result = jax.jit(endless.evaluate)(jax.random.key(0), ALWAYS)
    assert result.lengths.max() <= 11


def test_one_compilation(runner):
    chex.clear_trace_counter()
    evaluate = jax.jit(chex.assert_max_traces(runner.evaluate, n=1))
    for seed in range(3):
        evaluate(jax.random.key(seed), ALWAYS * seed / 4)


N_ROWS = 1100


@pytest.fixture(scope="module")
def episodes():
    """(levels [R], episodes on them by two seeds [S, R], recordings of the same). A tenth of the levels are long."""
    player = alone(Corridor(max_steps=30), Walker())
    random = np.random.default_rng(0)
    long = random.random(N_ROWS) < 0.1
    distance, limit = random.integers(1, 12, (2, N_ROWS))
    levels = CorridorLevel(np.where(long, 25, distance).astype(np.int32), np.where(long, 30, limit).astype(np.int32))
    keys, params = evaluation_keys(range(2)), (np.array([0.6, 0.9], np.float32),)
    play = jax.vmap(player.play, in_axes=(0, 0, None), axis_name=axes.SEED)
    record = jax.vmap(player.record, in_axes=(0, 0, None))
    return levels, *jax.device_get((jax.jit(play)(keys, params, levels), jax.jit(record)(keys, params, levels)))


def test_a_recording_is_the_episode_that_is_played(episodes):
    levels, played, recording = episodes
    assert recording.running.shape == recording.states.position.shape == (2, 31, N_ROWS)
    for seed, row in np.ndindex(2, 20):
        position, running = recording.states.position[seed, :, row], recording.running[seed, :, row]
        length = played.lengths[seed, row]
        assert set(np.diff(position[: length + 1])) <= {0, 1}
        assert running[: length + 1].all()
        assert not running[length + 1 :].any()
        assert (position[length] == levels.distance[row]) == (played.returns[seed, row] > 0)


def test_dropping_rows_that_have_ended_changes_no_episode(episodes):
    """1,100 rows are cut down to 275 on the way, of both seeds alike; a recording plays all of them to the end."""
    assert smaller_batches(N_ROWS) == [275]
    _, played, recording = episodes
    chex.assert_trees_all_equal(played, recording.stats)
    assert (played.lengths > 12).any()


def test_small_batches_are_not_cut():
    assert smaller_batches(1023) == []
    assert smaller_batches(1024) == [256]
    assert smaller_batches(20_000) == [5000, 1250, 312]


@struct.dataclass
class CoinState:
    level: jax.Array  # f32[], the probability of winning


@dataclasses.dataclass(frozen=True)
class Coin(Environment):
    """One step: it wins with the level's probability, whatever the agent does. Levels below `least` are unsolvable."""

    least: float = 0.2
    max_steps: int = 1
    observation_space = Box(0, 1, ())
    action_space = Discrete(2)

    def sample_level(self, key):
        return jax.random.uniform(key)

    def reset(self, key, level):
        return CoinState(level=level), self.emit(level, jnp.zeros((), jnp.float32), False)

    def step(self, key, state, action):
        won = jax.random.bernoulli(key, state.level)
        return state, self.emit(state.level, won.astype(jnp.float32), True)

    def emit(self, obs, reward, over):
        return TimeStep(obs=obs, reward=reward, terminated=jnp.asarray(over), truncated=jnp.zeros((), bool))

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {"solvable": (level >= self.least).astype(jnp.float32)}


@pytest.fixture(scope="module")
def coins():
    return RobustEvaluator(Coin(), Walker(), RobustProtocol(n_levels=4000, n_episodes=5, n_rows=7000))


@pytest.fixture(scope="module")
def coin_result(coins):
    """Three seeds: 466 levels a dispatch, so the last of 9 dispatches is filled up."""
    return coins.evaluate(jax.random.key(0), evaluation_keys(range(3)), jnp.ones(3, jnp.float32))


def test_levels_that_cannot_be_solved_are_left_out(coins):
    levels = coins.draw_levels(jax.random.key(5))
    assert levels.shape == (4000,)
    assert levels.min() >= 0.2
    assert levels.mean() == pytest.approx(0.6, abs=4 * 0.8 / np.sqrt(12 * 4000))  # uniform on [.2, 1)
    assert len(np.unique(levels)) > 3900


def test_the_worst_levels_are_reported_without_the_bad_luck_that_selected_them(coins, coin_result):
    """The true solved rates of the selected levels are known: the second evaluation finds them, the first does not."""
    truth = coins.draw_levels(jax.random.key(0))  # the levels of the fixture
    for share in (0.01, 0.02, 0.05, 0.1):
        worst = worst_levels(coin_result.ranking, share)
        expected = truth[worst].mean(axis=1)
        first = np.take_along_axis(coin_result.ranking, worst, axis=1).mean(axis=1)
        error = 4 * 0.5 / np.sqrt(5 * worst.shape[1])  # four standard errors of a mean of coin flips, at most
        np.testing.assert_allclose(coin_result.solved_rates(share), expected, atol=error)
        assert (first < expected - 0.15).all()
    np.testing.assert_allclose(coin_result.solved_rates(1.0), truth.mean(), atol=4 * 0.5 / np.sqrt(5 * 4000))


def test_the_two_evaluations_and_the_seeds_are_independent_given_the_level(coins, coin_result):
    truth = coins.draw_levels(jax.random.key(0))
    luck = np.concatenate([coin_result.ranking, coin_result.reported]) - truth
    correlation = np.corrcoef(luck) - np.eye(6)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_worst_levels_by_hand():
    rates = np.array([[0.5, 0.0, 1.0, 0.0, 0.2], [1.0, 0.9, 0.8, 0.7, 0.6]])
    np.testing.assert_array_equal(worst_levels(rates, 0.4), [[1, 3], [4, 3]])  # the first drawn of equal ones
    np.testing.assert_array_equal(worst_levels(rates, 0.001), [[1], [4]])  # at least one
    result = RobustResult(ranking=rates, reported=rates[:, ::-1])
    np.testing.assert_allclose(result.solved_rates(0.4), [0.0, 0.95])
    np.testing.assert_allclose(result.solved_rates(1.0), [0.34, 0.8])


def test_an_environment_that_cannot_tell_uses_all_levels():
    runner = RobustEvaluator(Corridor(), Walker(), RobustProtocol(n_levels=50, n_episodes=2))
    assert not runner.knows_solvable
    assert runner.draw_levels(jax.random.key(0)).limit.shape == (50,)


@pytest.mark.deep
def test_an_evaluation_of_an_environment_that_cannot_tell_uses_all_levels():
    runner = RobustEvaluator(Corridor(), Walker(), RobustProtocol(n_levels=50, n_episodes=2))
    result = runner.evaluate(jax.random.key(0), evaluation_keys([0]), jnp.ones(1, jnp.float32))
    assert result.ranking.shape == (1, 50)
    np.testing.assert_array_equal(result.ranking, result.reported)  # nothing random about it


def test_hopeless_level_generators_are_given_up():
    runner = RobustEvaluator(Coin(least=2.0), Walker(), RobustProtocol(n_levels=20, n_episodes=1))
    with pytest.raises(ValueError, match=r"^only 0 of \d+ random levels can be solved: 20 are needed$"):
        runner.draw_levels(jax.random.key(0))


@pytest.mark.parametrize("setting", ["n_levels", "n_episodes", "n_rows"])
def test_impossible_protocols_are_refused(setting):
    with pytest.raises(ValueError, match=f"^{setting} is 0: it must be at least 1$"):
        RobustProtocol(**{setting: 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": -1}, "eval.every is -1: it must be at least 0"),
        ({"n_episodes": 0}, "eval.n_episodes is 0: it must be at least 1"),
        ({"tasks": ()}, "eval.tasks is empty"),
        ({"tasks": ("a", "b", "a")}, "eval.tasks names 'a' twice"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Evaluation(**settings)


def test_an_unknown_task_is_refused_with_what_there_is():
    settings = Evaluation(tasks=("TraningDistribution",))
    with pytest.raises(ValueError, match=r"unknown held-out task 'TraningDistribution'.*TrainingDistribution"):
        settings.build(Coin(), Walker())
    assert Evaluation(tasks=("TrainingDistribution",)).build(Coin(), Walker()).names == ("TrainingDistribution",)


def test_evaluation_keys_all_differ_and_do_not_depend_on_the_seeds_beside():
    keys = [evaluation_keys([0, 1, 7], evaluation_seed) for evaluation_seed in (0, 1, 2)]
    numbers = np.concatenate([jax.random.key_data(k) for k in keys])
    assert len(np.unique(numbers, axis=0)) == 9
    assert evaluation_keys([7])[0] == keys[0][2]


def test_groups_of_tasks_stand_for_their_members_each_once():
    suite = Evaluation(tasks=("StandardMaze", "minimax_validation", "TrainingDistribution")).build(AMaze(), Walker())
    assert suite.names == ("StandardMaze", "SixteenRooms", "Labyrinth", "TrainingDistribution")
    assert len(Evaluation(tasks=("benchmark",)).build(AMaze(), Walker()).names) == 12
    for group in ("validation", "benchmark", "all"):  # an environment without a suite has its own levels
        assert Evaluation(tasks=(group,)).build(Coin(), Walker()).names == ("TrainingDistribution",)
