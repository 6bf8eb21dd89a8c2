"""Whether a level gets a score does not depend on how its episodes come out, wherever it stands in its row.

The level of `Coin` is the chance of success, whatever is done: success after 3 steps, failure after 9. So what the
scored levels should be like is known. Thresholds are for fixed seeds; of twenty other seeds, none came near them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import REPLAY, level_batch
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.curricula.scores import SCORES, Score, finished
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.metrics import fewest_actions
from minimax_lib.gae import clipped_gae
from minimax_lib.opponents.duel import OPPONENT_RETURN, Duel
from minimax_lib.playing.returns import Layout
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.runners.build import trained_with
from minimax_lib.testing.curricula import small_agent
from tests.test_solved import LONG, SHORT, Coin

N_LEVELS, N_ROWS, N_STEPS = 6, 2048, 10  # levels of a row, rows, steps of a rollout: one episode at most is sure to end
N_BATCHES = 8


@functools.cache
def played(seed: int = 0) -> dict[str, np.ndarray]:
    """What became of levels, [rows, N_LEVELS] each, that two students played in turn."""
    env = Coin()
    settings = PLR(n_parallel=N_ROWS, n_steps=N_STEPS, levels_per_row=N_LEVELS, n_students=2, capacity=8)
    runner = trained_with(env, small_agent(env, 2), settings)
    assert runner.n_rollouts == 4  # with one, only the first level of each row could have a score
    constant = Score(lambda x: finished(x, jnp.ones(x.episodes.count.shape[-1])))

    @jax.jit
    def one_batch(key):
        k_init, k_levels, k_play = jax.random.split(key, 3)
        state = runner.init(k_init)
        levels = jax.vmap(env.sample_level)(jax.random.split(k_levels, N_ROWS * N_LEVELS))
        outcome = runner.students(state).play(k_play, level_batch(levels))
        none = jnp.zeros_like(levels)
        return {
            "chance": levels,
            "kept": jnp.isfinite(outcome.score(constant, none)),
            "regret": outcome.score(SCORES["relative_regret"], none),
            "begun": outcome.episodes.begun.all(axis=0),
            "won": outcome.episodes.solved[0],
        }

    batches = [one_batch(key) for key in jax.random.split(jax.random.key(seed), N_BATCHES)]
    return {name: np.concatenate([np.asarray(b[name]) for b in batches]).reshape(-1, N_LEVELS) for name in batches[0]}


@pytest.mark.parametrize("place", range(N_LEVELS))
def test_levels_with_a_score_are_like_all_levels_at_every_place_of_a_row(place):
    found = played()
    kept, chance = found["kept"][:, place], found["chance"][:, place]
    assert kept.sum() > 2_000
    assert chance[kept].mean() == pytest.approx(0.5, abs=0.01 + 3 * 0.289 / np.sqrt(kept.sum()))
    # Failures are seen as often as they happen: at half of the levels.
    assert found["won"][kept, place].mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(kept.sum()))


@pytest.mark.parametrize("place", range(N_LEVELS))
def test_a_teacher_is_paid_the_true_regret_at_every_place_of_a_row(place):
    """Both students succeed with the level's chance p, so that the regret is p (1 - p): 1/6 over uniform chances."""
    found = played()
    kept, regret, chance = (found[name][:, place] for name in ("kept", "regret", "chance"))
    assert regret[kept].mean() == pytest.approx(1 / 6, abs=0.02)
    hard, easy = kept[chance < 0.2].mean(), kept[chance > 0.8].mean()
    assert hard == pytest.approx(easy, abs=0.04)  # paid as often, whatever the design is like


def test_of_one_rollout_only_the_first_level_of_a_row_can_be_scored():
    env = Coin()
    settings = PLR(n_parallel=8, n_steps=N_STEPS, levels_per_row=3, rollouts_per_batch=1, capacity=8)
    runner = trained_with(env, small_agent(env), settings)

    @jax.jit
    def counts(key):
        outcome = runner.students(runner.init(key)).play(key, level_batch(jnp.full(24, 0.9)))
        return outcome.episodes.count, outcome.episodes.begun

    count, begun = (np.asarray(x)[0].reshape(8, 3) for x in counts(jax.random.key(0)))
    assert count.tolist() == [[1, 0, 0]] * 8
    assert begun[:, 1].all()  # some would even have ended in time, and only if they succeeded
    assert LONG < N_STEPS < LONG + SHORT


def test_levels_that_were_not_played_keep_their_age():
    """Six slots of ages 0 to 5. Slots 2, 4 and 2 are drawn, and the last draw is not played."""
    ages, filled = np.arange(6, dtype=np.int32), np.ones(6, bool)
    aged = jax.jit(level_buffer.aged)
    slots = np.array([2, 4, 2], np.int32)
    assert aged(ages, filled, slots, np.array([True, True, True])).tolist() == [3, 4, 0, 6, 1, 8]
    assert aged(ages, filled, slots, np.array([True, True, False])).tolist() == [2, 3, 1, 5, 0, 7]
    assert aged(ages, filled, slots, np.zeros(3, bool)).tolist() == ages.tolist()


def test_a_replayed_batch_ages_the_buffer_by_what_was_played():
    """Failures last so long that rows come to two of their four levels."""
    env = Coin(fixed=0.0)
    settings = PLR(n_parallel=2, n_steps=N_STEPS, levels_per_row=4, rollouts_per_batch=1, capacity=8, unique=False)
    runner = trained_with(env, small_agent(env), settings)
    curriculum = runner.curriculum

    @jax.jit
    def after(key, batch, buffer):
        outcome = runner.students(runner.init(key)).play(key, batch)
        return curriculum.scored(buffer, batch, outcome)[0].ages

    buffer = jax.jit(curriculum.init)(jax.random.key(0)).buffer
    full = buffer.replace(filled=np.ones(8, bool), scores=np.ones(8, np.float32), ages=np.full(8, 5, np.int32))
    slots = np.array([0, 1, 2, 3, 4, 5, 6, 7], np.int32)
    batch = level_batch(jnp.zeros(8), REPLAY).replace(slots=slots)
    ages = after(jax.random.key(1), batch, full)
    assert ages.tolist() == [3, 2, 9, 9, 1, 0, 9, 9]


def steps_of(done: np.ndarray, returns: np.ndarray, **changes) -> Transition:
    zeros = np.zeros(done.shape, np.float32)
    return Transition(
        obs=(), action=zeros, reward=zeros, done=done, episode_return=returns, discount=zeros, first=done,
        log_prob=zeros, value=zeros, truncation_value=None, progress=zeros, facts=changes.get("facts", {}),
    )  # fmt: skip


def test_win_rates_are_of_the_first_game_of_each_row():
    """A win takes one step and a loss four. Of all games that end in four steps, most would be wins."""
    done = np.zeros((4, 1, 2), bool)
    done[:, 0, 0], done[3, 0, 1] = True, True
    returns = np.where(np.arange(2) == 0, 1.0, -1.0) * np.ones((4, 1, 2), np.float32)
    runs = Rollout(
        steps=steps_of(done, returns, facts={OPPONENT_RETURN: -returns}), carry=(), last_value=(), final=None
    )
    duel = Duel(slots=np.zeros(1, np.int32), serials=np.zeros(1, np.int32), params=())
    games = jax.jit(lambda runs: RolloutOutcome(None, None, runs).games(duel))(runs)
    assert np.asarray(games.student_return)[np.asarray(games.valid)].tolist() == [1.0, -1.0]


# ------------------------------------------------------------------------------------------------- published scores


def test_clipped_advantages_are_those_of_the_paper():
    """Against the definition, a sum at a time, and a case by hand."""
    clipped = jax.jit(clipped_gae, static_argnums=(2, 3))
    by_hand = clipped(np.array([[-1.0], [2.0], [-1.0]], np.float32), np.array([[0], [0], [1]], bool), 1.0, 0.5)
    np.testing.assert_allclose(np.asarray(by_hand)[:, 0], [-0.75, -0.5, -1.0])
    rng, n_steps, gamma, lam = np.random.default_rng(0), 30, 0.9, 0.7
    errors, done = rng.normal(size=(n_steps, 3)).astype(np.float32), rng.random((n_steps, 3)) < 0.15
    expected = np.zeros((n_steps, 3))
    for row in range(3):
        for s in range(n_steps):
            end = next((t for t in range(s, n_steps) if done[t, row]), n_steps - 1)
            sums = [min(0.0, errors[s, row])]
            for i in range(1, end - s + 1):
                sums.append(min(0.0, sums[-1] + gamma**i * errors[s + i, row]))
            mixed = (1 - lam) * sum(lam**i * x for i, x in enumerate(sums[:-1]))
            expected[s, row] = mixed + lam ** (end - s) * sums[-1]
    np.testing.assert_allclose(clipped(errors, done, gamma, lam), expected, atol=1e-5)


def test_mna_puts_a_level_that_is_solved_half_of_the_time_before_one_that_nobody_solves():
    """The value is right on average. `negative_advantage` puts them the other way round."""
    n_rows, n_steps = 64, 20
    done = np.zeros((n_steps, 1, 2 * n_rows), bool)
    done[9::10] = True
    reward = np.zeros((n_steps, 1, 2 * n_rows), np.float32)
    reward[9::10, :, 1:n_rows:2] = 1.0  # every second episode of the first level
    steps = steps_of(
        done, reward
    ).replace(
        reward=reward,
        value=np.full(done.shape, 0.25, np.float32),  # what an episode pays on average
        discount=1.0 - done.astype(np.float32),
        progress=reward,
        first=np.concatenate([np.ones_like(done[:1]), done[:-1]]),
    )
    runs = Rollout(steps=steps, carry=(), last_value=np.full((1, 2 * n_rows), 0.25, np.float32), final=None)
    agent = small_agent(AMaze())

    @jax.jit
    def scores(runs):
        outcome = RolloutOutcome(agent, None, runs, layout=Layout(n_evals=n_rows))
        return [outcome.score(SCORES[name], jnp.zeros(2)) for name in ("mna", "negative_advantage")]

    mna, ours = (np.asarray(x) for x in scores(runs))
    assert mna[0] > 0
    assert mna[1] == 0
    assert ours[1] > ours[0]


def test_the_fewest_actions_are_those_of_a_search_in_plain_python():
    env = AMaze(height=5, width=4, n_walls=7)
    levels = jax.device_get(jax.jit(jax.vmap(env.sample_level))(jax.random.split(jax.random.key(0), 64)))
    n_actions, solvable = (np.asarray(x) for x in jax.jit(jax.vmap(fewest_actions))(levels))
    for i in range(64):
        known = searched(levels.wall_map[i], (*levels.agent_pos[i], levels.agent_dir[i]), tuple(levels.goal_pos[i]))
        assert (n_actions[i] if solvable[i] else None) == known
    assert 0 < solvable.mean() < 1


def searched(walls, start, goal):
    """Turns and moves from `start` (x, y, facing) to `goal`, by breadth; None if there is no way."""
    layer, seen, n = {tuple(map(int, start))}, set(), 0
    while layer:
        if any((x, y) == goal for x, y, _ in layer):
            return n
        seen |= layer
        after = set()
        for x, y, facing in layer:
            dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[facing]
            after |= {(x, y, (facing + 1) % 4), (x, y, (facing - 1) % 4)}
            if 0 <= x + dx < walls.shape[1] and 0 <= y + dy < walls.shape[0] and not walls[y + dy, x + dx]:
                after.add((x + dx, y + dy, facing))
        layer, n = after - seen, n + 1
    return None


def test_exact_regret_is_nothing_on_the_best_way_and_all_of_it_where_the_goal_was_missed():
    """A corridor of four cells: three steps forward pay 1 - 0.9 * 3 / 20, discounted twice."""
    env = AMaze(height=1, width=4, n_walls=0, max_steps=20)
    start, goal, open_cells = np.array([0, 0], np.int32), np.array([3, 0], np.int32), np.zeros((1, 4), bool)
    level = Level(wall_map=open_cells, agent_pos=start, agent_dir=np.int32(0), goal_pos=goal)
    best, optimum = (1 - 0.9 * 3 / 20) * 0.9**2, jax.jit(lambda level: env.optimal_return(level, 0.9))
    assert float(optimum(level)) == pytest.approx(best)
    shut = level.replace(wall_map=np.array([[False, True, False, False]]))
    assert float(optimum(shut)) == 0.0


def test_exact_regret_is_refused_where_nobody_knows_the_best_return():
    with pytest.raises(ValueError, match=r"'exact_regret' needs the method optimal_return, and Coin has none"):
        trained_with(Coin(), small_agent(Coin()), PLR(n_parallel=4, n_steps=16, score="exact_regret"))
