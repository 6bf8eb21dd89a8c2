"""Opponents in worlds of many agents: whose seat it is, what each sees and does, and who has won."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from scipy.stats import chisquare
from test_joint import agent_of, biased, params_of

from minimax_lib.curricula.games.joint import SelfPlayMethod
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.envs.multi_agent import BatchMultiEnv, MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.restarts import FreshLevels
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.opponents import bank as banks
from minimax_lib.opponents.duel import OPPONENT_RETURN, BatchDuel, Duel, mean_of_seats
from minimax_lib.playing.returns import Layout
from minimax_lib.playing.rollout import begin, go_on
from minimax_lib.playing.students import facing, layout_of
from minimax_lib.runners.build import trained_with

KEY = jax.random.key(3)
N_AGENTS, N_SEATS, N_GAMES, N_STEPS = 6, 4, 4, 12


class State(struct.PyTreeNode):
    level: jax.Array  # i32[]
    sums: jax.Array  # i32[G], what each agent has done so far
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Party(MultiAgentEnvironment):
    """Each agent is paid what it does. Agent g of level l dies after 1 + (l + g) mod 6 steps, all end at 5."""

    n_agents: int = N_AGENTS
    team_size: int = 1
    max_steps: int = 5
    observation_space = Box(-99.0, 99.0, (4,))
    action_space = Discrete(3)

    def sample_level(self, key):
        return jax.random.randint(key, (), 0, 6, jnp.int32)

    def observe(self, state):
        seats = jnp.arange(self.n_agents)
        rest = (jnp.broadcast_to(x, seats.shape) for x in (state.level, state.time))
        return jnp.stack([seats, *rest, state.sums], axis=1).astype(jnp.float32)

    def reset(self, key, level):
        state = State(level=level, sums=jnp.zeros(self.n_agents, jnp.int32), time=jnp.zeros((), jnp.int32))
        return state, agents_opening(self.observe(state), progress=jnp.zeros(self.n_agents))

    def step(self, key, state, action):
        lifetime = 1 + (state.level + jnp.arange(self.n_agents)) % 6
        playing, time = state.time < lifetime, state.time + 1
        done = jnp.where(playing, action, 0)
        state = state.replace(sums=state.sums + done, time=time)
        late = jnp.broadcast_to(time >= self.max_steps, playing.shape)
        ts = agents_transition(
            self.observe(state),
            done.astype(jnp.float32),
            playing,
            playing & (time >= lifetime),
            playing & late,
            late[0],
            jnp.zeros(self.n_agents),
        )
        return state, ts


@functools.cache
def played(team_size=1, n_seats=N_SEATS, seed=3):
    """(the rollout of a student that does 1, its seats [T, N, G] before each step). The opponents do 0 and 2."""
    env, agent = Party(team_size=team_size), agent_of()
    one = jax.tree.map(lambda x: x[0], params_of(agent))
    waits, works, student = (biased(one, action) for action in (0, 2, 1))
    opponents = jax.tree.map(lambda *xs: np.stack(xs), waits, works)
    duel = Duel(slots=np.arange(2, dtype=np.int32), serials=np.arange(2, dtype=np.int32), params=opponents)
    rows = BatchDuel(BatchMultiEnv(env, restart=FreshLevels(env.sample_level)), agent.agent, 2, True, n_seats)
    params = jax.tree.map(lambda x: x[None], student)

    class Seen(BatchDuel):
        """Says in the facts who sits where."""

        def step_stocked(self, key, state, action):
            after, ts = super().step_stocked(key, state, action)
            seats = state.seats[:, : self.n_seats].reshape(1, -1).astype(jnp.float32)
            others = jnp.repeat(state.seats[:, self.n_seats :].sum(axis=1), self.n_seats)[None].astype(jnp.float32)
            return after, ts.replace(facts=ts.facts | {"seat": seats, "others": others})

    rows = Seen(rows.games, rows.agent, rows.n_groups, rows.greedy, rows.n_seats)

    @jax.jit
    def play(seed):
        key = jax.random.key(seed)
        levels = jax.vmap(env.sample_level)(jax.random.split(key, N_GAMES))
        start = facing(rows, begin(key, rows, agent, levels), duel)
        run = go_on(key, rows, agent, params, start, N_STEPS)
        return run, RolloutOutcome(agent, params, run, None, layout_of(rows)).games(duel)

    run, games = jax.device_get(play(seed))
    return jax.tree.map(lambda x: x[:, 0].reshape(N_STEPS, N_GAMES, n_seats, *x.shape[3:]), run.steps), games, duel


def test_rows_are_the_students_seats_and_see_what_these_see():
    steps, _, _ = played()
    np.testing.assert_array_equal(steps.obs[..., 0], steps.facts["seat"])
    seats = steps.facts["seat"]
    assert (np.sort(seats, axis=2)[:, :, 1:] > np.sort(seats, axis=2)[:, :, :-1]).all()  # nobody sits twice
    np.testing.assert_array_equal(seats.sum(axis=2) + steps.facts["others"][:, :, 0], sum(range(N_AGENTS)))
    # A dead agent sees on, so that its own sum is as it was: what its seat has done, by hand.
    for game in range(N_GAMES):
        for seat in range(N_SEATS):
            total = 0
            for t in range(N_STEPS):
                row = jax.tree.map(lambda x, t=t, game=game, seat=seat: x[t, game, seat], steps)
                total = 0 if row.first else total
                number, level, time, own = row.obs
                alive = time < 1 + (level + number) % 6
                assert (own, bool(row.valid)) == (total, alive)
                total += 1 if alive else 0
                assert row.reward == (1.0 if alive else 0.0)
                assert row.episode_return == total


def test_seats_change_with_the_game_and_never_within_it():
    steps, _, _ = played()
    seats, first = steps.facts["seat"], steps.first[:, :, 0]
    changed = (seats[1:] != seats[:-1]).any(axis=2)
    assert not changed[~first[1:]].any()
    assert changed[first[1:]].mean() > 0.9


def test_the_opponents_return_is_the_mean_over_their_seats():
    """Opponents of the first half of the games do 0, of the other half 2, each as long as it lives."""
    steps, _, _ = played()
    for t in range(N_STEPS):
        for game in range(N_GAMES):
            _, level, time, _ = steps.obs[t, game, 0]
            mine = set(steps.facts["seat"][t, game].astype(int))
            lived = [min(time + 1, 1 + (level + g) % 6) for g in range(N_AGENTS) if g not in mine]
            expected = np.mean(lived) * (0 if game < N_GAMES // 2 else 2)
            np.testing.assert_allclose(steps.facts["opponent_return"][t, game], expected, rtol=1e-6)


def test_a_game_is_its_first_world_to_the_end_with_all_the_dead():
    steps, games, duel = played()
    valid = games.valid.reshape(N_STEPS, N_GAMES)
    assert (valid.sum(axis=0) == 1).all()
    for game in range(N_GAMES):
        (t,) = np.nonzero(valid[:, game])[0]
        assert t == 4  # no game is shorter, whoever has died
        _, level, _, _ = steps.obs[0, game, 0]
        seats = steps.facts["seat"][t, game].astype(int)
        lives = {g: min(5, 1 + (level + g) % 6) for g in range(N_AGENTS)}
        own = np.mean([lives[g] for g in seats])
        others = np.mean([lives[g] for g in lives if g not in seats]) * (0 if game < N_GAMES // 2 else 2)
        place = t * N_GAMES + game
        assert games.student_return[place] == pytest.approx(own)
        assert games.opponent_return[place] == pytest.approx(others, rel=1e-6)
        assert games.slot[place] == duel.slots[game // (N_GAMES // 2)]


@pytest.mark.parametrize("value", [0.1, 0.3, -0.2, 0.6])
def test_where_all_have_the_same_return_it_is_a_draw(value):
    """In float32, the sum of seven times .1, divided by seven, is more than .1."""
    returns = np.full((1, 8), value, np.float32)
    sums = [functools.reduce(lambda a, b: np.float32(a + b), returns[0, :7]) / np.float32(7), returns[0, 7]]
    assert sums[0] != sums[1]
    ends = jnp.ones((1, 1, 7), bool)
    own, other = jnp.asarray(returns[:, :7]), jax.jit(mean_of_seats)(returns[:, 7:])
    steps = SimpleNamespace(
        valid=ends,
        first=ends,
        episode_return=own[None],
        facts={OPPONENT_RETURN: jnp.broadcast_to(other, (1, 1, 7))},
    )
    runs: Any = SimpleNamespace(steps=steps, final=SimpleNamespace(first=ends[0]))
    duel = Duel(slots=jnp.zeros(1, jnp.int32), serials=jnp.zeros(1, jnp.int32), params=())
    layout = Layout(n_evals=1, n_agents=7)
    games = jax.jit(lambda: RolloutOutcome(None, None, runs, None, layout).games(duel))()  # type: ignore[arg-type]
    assert banks.outcomes_of(games).tolist() == [banks.DRAW]
    seats = np.float32([[3.0, 0.5, 1.0], [-1.0, 4.0, 0.0]])
    np.testing.assert_allclose(mean_of_seats(seats), [1.5, 1.0])


@pytest.mark.parametrize(("team_size", "n_seats"), [(1, 2), (2, 2), (3, 3)])
def test_every_order_of_teams_is_equally_likely_and_teams_stay_together(team_size, n_seats):
    """By chi-square over 6,000 games; a fair deal fails one time in a thousand."""
    rows = BatchDuel(BatchMultiEnv(Party(team_size=team_size)), agent_of().agent, n_seats=n_seats)
    seats = np.asarray(jax.jit(lambda: rows._seats(KEY, 6000))())
    n_teams = N_AGENTS // team_size
    teams = seats.reshape(-1, n_teams, team_size)
    np.testing.assert_array_equal(teams % team_size, np.broadcast_to(np.arange(team_size), teams.shape))
    order = teams[:, :, 0] // team_size
    np.testing.assert_array_equal(np.sort(order, axis=1), np.broadcast_to(np.arange(n_teams), order.shape))
    pairs = np.bincount(order[:, 0] * n_teams + order[:, 1], minlength=n_teams**2).reshape(n_teams, n_teams)
    assert not np.diag(pairs).any()
    assert chisquare(pairs[~np.eye(n_teams, dtype=bool)]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("n_agents", "team_size", "seats"), [(2, 1, 1), (3, 1, 2), (8, 1, 7), (24, 1, 21), (128, 1, 112), (24, 4, 20)]
)
def test_by_default_the_student_has_seven_of_eight_seats(n_agents, team_size, seats):
    assert SelfPlayMethod().seats_in(Party(n_agents=n_agents, team_size=team_size)) == seats


@pytest.mark.parametrize(
    ("seats", "team_size", "sentence"),
    [
        (6, 1, "runner.seats is 6: it must be between 1 and 5, since Party has 6 agents"),
        (0, 1, "runner.seats is 0: it must be between 1 and 5"),
        (3, 2, r"runner.seats is 3: it must be a multiple of 2, the agents of a team \(try 4\)"),
        (5, 3, r"runner.seats is 5: it must be a multiple of 3, the agents of a team \(try 3\)"),
    ],
)
def test_seats_that_cannot_be_are_refused(seats, team_size, sentence):
    with pytest.raises(ValueError, match=sentence):
        SelfPlayMethod(seats=seats).build(Party(team_size=team_size), agent_of(), 8)


@pytest.mark.deep
def test_games_that_last_several_rollouts_are_booked_when_they_end():
    """Games of 5 steps in two rollouts of 3: each of the 8 ends once in a batch."""
    rollouts = {"n_parallel": 8, "n_steps": 3, "rollouts_per_batch": 2}
    bank = {"n_opponents": 2, "capacity": 4, "every": 2, "window": 16}
    method = SelfPlayMethod(**rollouts, **bank, levels=PLRSettings(capacity=16, min_fill=0.25))
    runner = trained_with(Party(), agent_of(), method)
    state, step = runner.init(KEY), jax.jit(runner.step)
    for _ in range(5):
        state, report = step(state)
        assert report["games/ended"] == 8
        rates, met = (np.asarray(x) for x in banks.win_rates(state.curriculum.bank.record))
        assert rates[met].mean() == pytest.approx(float(report["opponents/win_rate"]), abs=1e-6)
    assert state.curriculum.bank.record.n_games.sum() > 8
    buffer = state.curriculum.levels.buffer
    assert buffer.filled.any()
    assert np.isfinite(np.asarray(buffer.scores)[np.asarray(buffer.filled)]).all()
