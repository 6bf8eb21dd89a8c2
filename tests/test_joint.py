"""Opponents in the other seat, curricula over levels and opponents, and MAESTRO."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.base import level_batch
from minimax_lib.curricula.games.joint import SelfPlayMethod, bank_metrics, duel_of, effective_number
from minimax_lib.curricula.games.maestro import MaestroMethod
from minimax_lib.curricula.levels.accel import ACCELSettings
from minimax_lib.curricula.levels.designed import Teacher
from minimax_lib.curricula.levels.dr import RandomLevels
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.curricula.levels.sfl import SFLSettings
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.multi_agent import (
    BatchMultiEnv,
    MultiAgentEnvironment,
    agents_opening,
    agents_transition,
    batch_of,
)
from minimax_lib.envs.registry import make_held_out, teacher_of
from minimax_lib.envs.restarts import FreshLevels
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.models.settings import LSTM, FeedForward
from minimax_lib.opponents import bank as banks
from minimax_lib.opponents.cores import FictitiousSelfPlay
from minimax_lib.opponents.duel import BatchDuel, Duel
from minimax_lib.opponents.settings import FictitiousSelfPlaySettings, PFSPSettings, SelfPlaySettings
from minimax_lib.playing.rollout import begin, go_on
from minimax_lib.playing.students import CurrentStudents, batch_for, facing
from minimax_lib.portable.opponents import OpponentHost
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner
from tests.islands import Islands, Walk
from tests.test_multi_agent import same
from tests.zoo import N_SEEDS, steps_of

KEY = jax.random.key(11)


class RaceState(struct.PyTreeNode):
    level: jax.Array  # i32[], how far the goal is
    place: jax.Array  # i32[2]
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Race(MultiAgentEnvironment):
    """Two runners, 0 to 2 places a step, with some luck. Who is there alone has won; after 5 steps it is a draw."""

    max_steps: int = 5
    n_agents = 2
    zero_sum = True
    observation_space = Box(-9.0, 20.0, (4,))
    action_space = Discrete(3)

    def sample_level(self, key):
        return jax.random.randint(key, (), 2, 8, jnp.int32)

    def observe(self, state):
        other = state.place[::-1]
        seat = jnp.arange(2)
        rest = jnp.broadcast_to(state.level, (2,))
        return jnp.stack([state.place, other, rest, seat], axis=1).astype(jnp.float32)

    def reset(self, key, level):
        state = RaceState(level=level, place=jnp.zeros(2, jnp.int32), time=jnp.zeros((), jnp.int32))
        return state, agents_opening(self.observe(state), progress=jnp.zeros(2))

    def step(self, key, state, action):
        place = state.place + jnp.where(jax.random.uniform(key, (2,)) < 0.9, action, 0)
        state = state.replace(place=place, time=state.time + 1)
        there = place >= state.level
        won = there & ~there[::-1]
        end, late = jnp.broadcast_to(there.any(), (2,)), jnp.broadcast_to(state.time >= self.max_steps, (2,))
        reward = won.astype(jnp.float32) - won[::-1]
        ts = agents_transition(
            self.observe(state), reward, jnp.ones(2, bool), end, late, end[0] | late[0], won.astype(jnp.float32)
        )
        return state, ts


GAME = Race()
DENSE = FeedForward(dense_width=8, head_width=8)


def agent_of(model=DENSE, **settings):
    network = model.build(GAME.observation_space, GAME.action_space)
    return AgentPop(PPOAgent(network, PPO(n_epochs=1, lr=1e-2, **settings), 20))


def params_of(agent):
    """The parameters [1, ...] of one student."""
    first = jax.jit(lambda key: agent.agent.init(key, jnp.zeros(4)).params)
    return jax.tree.map(lambda x: np.asarray(x)[None], first(jax.random.fold_in(KEY, 0)))


def biased(params, action):
    """The parameters of a policy that takes one action nearly always: its last layer has a bias."""

    def change(path, x):
        is_bias = x.ndim == 1 and x.shape == (3,)
        if is_bias:
            return np.where(np.arange(3) == action, np.float32(20.0), np.float32(0.0))
        return x * 0 if x.ndim == 2 and x.shape[-1] == 3 else x

    return jax.tree_util.tree_map_with_path(change, jax.device_get(params))


# ------------------------------------------------------------------------------------------------------------ the duel


@functools.cache
def dueled(n_groups=2, n_steps=20, n_rows=8):
    """(a rollout of a student that waits, against one that waits and one that runs; the agent)."""
    agent = agent_of()
    one = jax.tree.map(lambda x: x[0], params_of(agent))
    waits, runs = biased(one, 0), biased(one, 2)
    opponents = jax.tree.map(lambda *xs: np.stack(xs), *[waits, runs][:n_groups])
    groups = np.arange(n_groups, dtype=np.int32)
    duel = Duel(slots=groups, serials=groups, params=opponents)
    env = BatchDuel(BatchMultiEnv(GAME, restart=FreshLevels(GAME.sample_level)), agent.agent, n_groups)
    student = jax.tree.map(lambda x: x[None], waits)

    def play():
        levels = jax.vmap(GAME.sample_level)(jax.random.split(KEY, n_rows))
        start = facing(env, begin(KEY, env, agent, levels), duel)
        return go_on(KEY, env, agent, student, start, n_steps)

    return jax.device_get(jax.jit(play)().replace(final=None)), agent, duel


def test_each_group_meets_its_own_opponent():
    run, _, _ = dueled()
    done, returns = (np.asarray(x)[:, 0] for x in (run.steps.done, run.steps.episode_return))
    assert done[:, :4].sum() == 4 * 4  # two who wait: 20 steps are four games of 5
    assert not returns[:, :4].any()
    assert (returns[:, 4:][done[:, 4:]] == -1).mean() > 0.9  # who runs wins, but where the goal is too far
    assert done[:, 4:].sum() > done[:, :4].sum()
    np.testing.assert_array_equal(run.steps.facts["opponent_return"][:, 0], -returns)


def test_the_student_changes_seats_from_game_to_game():
    run, _, _ = dueled()
    seat, first = np.asarray(run.steps.obs)[:, 0, :, 3], np.asarray(run.steps.first)[:, 0]
    games = np.cumsum(first, axis=0)
    for row in range(8):
        for game in range(1, games[-1, row] + 1):
            assert len(set(seat[games[:, row] == game, row])) == 1  # never within a game
    opening = seat[first]
    assert 0.25 < opening.mean() < 0.75
    assert len(opening) > 30


def test_own_place_stands_before_the_opponents():
    run, _, _ = dueled()
    obs = np.asarray(run.steps.obs)[:, 0]
    assert not obs[:, :, 0].any()  # the student waits
    assert obs[:, 4:, 1].max() > 2  # its opponent of the second group does not


@pytest.mark.deep
def test_the_student_draws_the_same_whatever_the_groups():
    """With opponents that are all the same, the number of groups changes nothing but their draws."""
    one, _, _ = dueled(1)
    two, _, _ = dueled(2)
    np.testing.assert_array_equal(one.steps.action[:, 0, :4], two.steps.action[:, 0, :4])
    np.testing.assert_array_equal(one.steps.obs[:, 0, :4, 3], two.steps.obs[:, 0, :4, 3])


@dataclasses.dataclass(frozen=True)
class Followed(Race):
    """Its written player runs until it is ahead, and then waits."""

    def bot(self, key, state, seat):
        return jnp.where(state.place[seat] > state.place[1 - seat], 0, 2)


def test_a_written_player_acts_for_its_own_seat_in_the_games_of_its_group():
    _, agent, duel = dueled()
    waits = jax.tree.map(lambda x: x[0], duel.params)
    duel = duel.replace(
        slots=np.array([banks.SCRIPT, 0], np.int32), params=jax.tree.map(lambda x: x[[0, 0]], duel.params)
    )
    game = Followed()
    env = BatchDuel(BatchMultiEnv(game, restart=FreshLevels(game.sample_level)), agent.agent, 2, may_be_scripted=True)

    def play():
        levels = jax.vmap(game.sample_level)(jax.random.split(KEY, 8))
        start = facing(env, begin(KEY, env, agent, levels), duel)
        return go_on(KEY, env, agent, jax.tree.map(lambda x: x[None], waits), start, 40)

    steps = jax.device_get(jax.jit(play)().replace(final=None)).steps
    obs = np.asarray(steps.obs)[:, 0]
    assert not obs[:, :, 0].any()  # the student waits
    assert set(obs[:, :4, 1].reshape(-1)) == {0, 2}  # the written player has gone ahead, by one step
    assert set(obs[:, :4, 3].reshape(-1)) == {0, 1}  # from either seat
    assert not obs[:, 4:, 1].any()  # the copy in the other group waits too
    lost = np.asarray(steps.episode_return)[:, 0][np.asarray(steps.done)[:, 0]]
    assert (lost == -1).any()


def test_a_curriculum_of_levels_may_play_against_the_opponents_of_the_batch():
    """`students.play` on levels of a curriculum that knows of no opponents, as `docs/curricula.md` offers it."""
    _, agent, duel = dueled()
    students = CurrentStudents(BatchDuel(batch_of(GAME), agent.agent, 2), agent, params_of(agent), 4).facing(duel)
    levels = jnp.full(8, 3, jnp.int32)
    plain, given = (level_batch(levels), level_batch(levels).replace(duel=duel))
    one, other = (jax.eval_shape(lambda batch=batch: students.play(KEY, batch).episodes) for batch in (plain, given))
    assert one == other


def test_the_score_that_needs_every_step_is_refused_against_opponents_too():
    plr = PLRSettings(capacity=4, score="parameter_change")
    for method in (SelfPlayMethod(n_parallel=4, levels=plr), MaestroMethod(n_parallel=4, plr=plr)):
        with pytest.raises(ValueError, match="Race has 2 agents: the score 'parameter_change' looks at updates"):
            trained_with(GAME, agent_of(), method)


def test_the_effective_number_of_copies_is_that_of_the_games_against_copies():
    for share in (1.0, 0.5, 0.1):
        assert effective_number(jnp.full(8, share / 8)) == pytest.approx(8, rel=1e-5)
    assert effective_number(jnp.zeros(8)) == 0


def test_opponents_forget_when_a_game_opens():
    agent = agent_of(LSTM(memory_width=4, head_width=8))
    env = BatchDuel(BatchMultiEnv(GAME), agent.agent)
    params = params_of(agent)
    duel = Duel(slots=np.zeros(1, np.int32), serials=np.zeros(1, np.int32), params=params)
    one = jax.tree.map(lambda x: x[0], params)

    @jax.jit
    def begun():
        return env.with_opponents(env.reset(KEY, jnp.full(4, 3, jnp.int32))[0], duel)

    @jax.jit
    def step(t, before):
        """(the next state, what is remembered of this step alone)"""
        state, _ = env.step_stocked(jax.random.fold_in(KEY, t), before, jnp.full((1, 4), 2))
        fresh = agent.agent.init_carry((4,))
        return state, agent.agent.policy(one, before.obs, fresh, jnp.ones(4, bool))[2]

    state, opened = begun(), 0
    for t in range(12):
        before = state
        state, carry = step(np.int32(t), before)
        rows = np.asarray(before.first)
        # What is remembered after the first step of a game is a function of this step alone.
        for x, y in zip(jax.tree.leaves(carry), jax.tree.leaves(state.carry), strict=True):
            np.testing.assert_allclose(np.asarray(x)[rows], np.asarray(y)[rows], atol=1e-6)
        opened += rows.sum()
    assert opened > 8


@pytest.mark.deep
def test_without_held_out_tasks_a_random_player_is_met():
    agent = agent_of()
    runner = EvalRunner(make_held_out(GAME, ["TrainingDistribution"]), agent.agent, 200)
    one = jax.tree.map(lambda x: x[0], params_of(agent))
    evaluate = jax.jit(runner.evaluate)
    waiting, running = (jax.device_get(evaluate(KEY, biased(one, action))) for action in (0, 2))
    assert not waiting.solved.any()
    assert waiting.facts["lost"].mean() > 0.4
    assert running.solved.mean() > 0.6
    # Who wins, loses or draws: each episode is one of these.
    ended = running.solved + running.facts["lost"] + running.facts["drawn"]
    np.testing.assert_array_equal(ended, np.ones((1, 200)))


def test_a_duel_needs_a_seat_for_each_side_and_one_student():
    agent = agent_of()
    with pytest.raises(ValueError, match=r"n_seats is 4: it must be between 1 and 3, since Islands has 4 agents"):
        BatchDuel(BatchMultiEnv(Islands()), agent.agent, n_seats=4)
    with pytest.raises(ValueError, match="2 students"):
        BatchDuel(BatchMultiEnv(GAME, 2), agent.agent)
    with pytest.raises(ValueError, match=r"Walk has 1 agent: opponents need a game for 2 or more"):
        SelfPlayMethod().build(Walk(), agent, 8)


# -------------------------------------------------------------------------------------------------- curricula over both

SMALL = {"n_parallel": 8, "n_steps": 10, "capacity": 4, "every": 2, "window": 16}
BUFFER = PLRSettings(capacity=16, min_fill=0.25)


def stepped(settings, n_steps=7, agent=None, game=GAME):
    """(the last state, all metrics) of a run of `settings`."""
    agent = agent or agent_of()
    runner = trained_with(game, agent, settings)
    state, step, reports = jax.jit(runner.init)(KEY), jax.jit(runner.step), []
    for _ in range(n_steps):
        state, metrics = step(state)
        reports.append(jax.device_get(metrics))
    return state, reports


def at_seed(tree, seed):
    """The part of a tree [S, ...] of one seed."""
    return jax.tree.map(lambda x: x[seed], tree)


@pytest.mark.parametrize("method", ["selfplay", "maestro"])
def test_games_against_copies_are_booked(method):
    """All games that have ended, and the rate of wins that is reported is that of the windows."""
    for seed in range(N_SEEDS):
        for i, step in enumerate(steps_of(method)):
            before, after = (at_seed(x.curriculum.bank.record, seed) for x in (step.before, step.after))
            told = {name: float(x[seed]) for name, x in step.report.metrics.items()}
            stayed = before.serial == after.serial
            assert (after.n_games - before.n_games * stayed).sum() == told["games/ended"] > 0
            met = [row[row != banks.NONE] for row in after.outcomes if (row != banks.NONE).any()]
            rates = [(row == banks.WIN).mean() + 0.5 * (row == banks.DRAW).mean() for row in met]
            assert np.mean(rates) == pytest.approx(told["opponents/win_rate"], abs=1e-6)
            if i == 0:
                assert (after.outcomes == banks.WIN).sum() == round(told["games/won"] * told["games/ended"])
                assert (after.outcomes == banks.DRAW).sum() == round(told["games/drawn"] * told["games/ended"])


@pytest.mark.deep
def test_the_window_holds_the_games_of_the_last_batch():
    state, reports = stepped(SelfPlayMethod(**SMALL | {"capacity": 1, "every": 1000, "window": 8}), 4)
    record = state.curriculum.bank.record
    assert record.n_games[0] == sum(r["games/ended"] for r in reports) == 4 * 8  # the first game of each of 8 rows
    outcomes = np.asarray(record.outcomes[0])
    last = reports[-1]
    n = int(last["games/ended"])
    assert n == 8 == (outcomes != banks.NONE).sum()  # the window holds games of the last batch alone
    rate = (outcomes == banks.WIN).mean() + 0.5 * (outcomes == banks.DRAW).mean()
    assert rate == pytest.approx(float(last["opponents/win_rate"]), abs=1e-6)


def test_the_rates_of_a_bank_are_those_of_its_record():
    """Slots in no order of age, one of them empty; the oldest copy and the newest one have no games."""
    none, loss, draw, win = banks.NONE, banks.LOSS, banks.DRAW, banks.WIN
    games = {
        5: [win, win],
        1: [none, none],
        9: [none, none],
        2: [loss, draw],
        7: [win, loss],
        banks.EMPTY: [none, none],
    }
    record = banks.Record(
        serial=np.array(list(games), np.int32),
        n_added=np.int32(10),
        outcomes=np.array(list(games.values()), np.uint8),
        n_games=np.array([2, 0, 0, 2, 2, 0], np.int32),
    )
    metrics = jax.jit(bank_metrics)
    expected = {"copies": 5, "win_rate": (1 + 0.25 + 0.5) / 3, "lowest_win_rate": 0.25}
    expected |= {"oldest_win_rate": 0.25, "newest_win_rate": 0.5}
    expected = {f"opponents/{name}": rate for name, rate in expected.items()}
    assert {name: float(rate) for name, rate in metrics(banks.Bank((), record)).items()} == pytest.approx(expected)
    unmet = metrics(banks.Bank((), record.replace(outcomes=np.zeros_like(record.outcomes))))
    assert {name for name, rate in unmet.items() if np.isnan(rate)} == set(expected) - {"opponents/copies"}


def test_games_against_the_written_player_count_for_no_copy():
    settings = SelfPlayMethod(**SMALL | {"every": 1000}, n_opponents=4, scripted=0.5)
    state, reports = stepped(settings, 8, game=Followed())
    shares = [float(r["games/scripted"]) for r in reports]
    ended = [float(r["games/ended"]) for r in reports]
    against_copies = sum(n * (1 - share) for n, share in zip(ended, shares, strict=True))
    assert state.curriculum.bank.record.n_games.sum() == round(against_copies)
    # Of 32 opponents; with twenty seeds .34 to .69.
    assert 0.2 < np.mean(shares) < 0.8
    # The student loses, where luck does not keep the other one back; with twenty seeds .04 to .32.
    won = [float(r["games/scripted_won"]) for r in reports if r["games/scripted"] > 0]
    assert np.mean(won) < 0.5


@pytest.mark.deep
def test_self_play_meets_the_student_as_it_is_now():
    state, reports = stepped(SelfPlayMethod(**SMALL, opponents=SelfPlaySettings()), 4)
    assert all(r["games/live"] == 1 for r in reports)
    assert not state.curriculum.bank.record.n_games.any()


@pytest.mark.deep
@pytest.mark.parametrize(
    "levels",
    [
        RandomLevels(),
        BUFFER,
        PLRSettings(capacity=16, min_fill=0.25, parallel=True),
        SFLSettings(every=2, n_scored=8, n_kept=4, n_episodes=3),
    ],
    ids=["dr", "plr", "parallel_plr", "sfl"],
)
def test_any_curriculum_of_levels_goes_with_any_of_opponents(levels):
    state, reports = stepped(SelfPlayMethod(**SMALL, levels=levels, opponents=PFSPSettings()), 6)
    assert all(np.isfinite(r["games/won"]) for r in reports)
    assert state.curriculum.bank.record.n_games.sum() > 0
    assert state.students.n_updates[0] > 0


@pytest.mark.parametrize("method", ["selfplay", "maestro"])
def test_levels_in_the_buffer_have_scores(method):
    for step in steps_of(method):
        curriculum = step.after.curriculum
        buffer = curriculum.levels.buffer if method == "selfplay" else curriculum.buffers
        assert np.isfinite(buffer.scores[buffer.filled]).all()
    assert buffer.filled.any()


@pytest.mark.deep
def test_a_level_is_scored_by_games_that_have_ended():
    state, _ = stepped(SelfPlayMethod(**SMALL, levels=BUFFER), 6)
    buffer = state.curriculum.levels.buffer
    assert np.isfinite(buffer.scores[buffer.filled]).all()
    assert int(buffer.filled.sum()) == 6  # there are six levels in this world


@pytest.mark.deep
def test_attempts_are_games_against_the_opponents():
    run, agent, duel = dueled()
    env = BatchDuel(BatchMultiEnv(GAME), agent.agent, 2)
    waits = jax.tree.map(lambda x: x[:1], duel.params)
    students = CurrentStudents(env, agent, waits, 8).facing(duel)
    attempts = jax.jit(lambda: students.attempts(KEY, jnp.full(4, 3, jnp.int32), 10))()
    lost = np.asarray(attempts.episodes.returns)[0]
    assert lost.shape == (4, 10)
    assert not lost[:2].any()  # both wait
    assert (lost[2:] == -1).mean() > 0.9
    assert run.steps.reward.shape[1] == 1


@pytest.mark.deep
def test_seeds_in_a_vmap_are_those_alone():
    agent = agent_of()
    runner = trained_with(GAME, agent, SelfPlayMethod(**SMALL, levels=BUFFER, opponents=PFSPSettings()))
    several, alone = SeedRunner(runner, 2), SeedRunner(runner, 1)
    both, _ = several.run(several.init(0), 5)
    one, _ = alone.run(alone.init(1), 5)
    record, single = both.curriculum.bank.record, one.curriculum.bank.record
    np.testing.assert_array_equal(record.n_games[1], single.n_games[0])
    for x, y in zip(jax.tree.leaves(both.students.params), jax.tree.leaves(one.students.params), strict=True):
        np.testing.assert_allclose(x[1], y[0], atol=1e-5)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("method", [SelfPlayMethod(**SMALL), MaestroMethod(**SMALL, plr=BUFFER)])
def test_the_rows_are_told_whether_opponents_are_greedy(method, greedy):
    """What a greedy opponent does, `test_many_seats.py` tests."""
    agent = agent_of()
    built = dataclasses.replace(method, greedy_opponents=greedy).build(GAME, agent, 8)
    assert batch_for(GAME, agent, built.plan).greedy is greedy


@pytest.mark.parametrize(("n_steps", "n_updates"), [(8, 20), (4, 10)])
def test_the_schedule_of_a_teacher_ends_with_the_run(n_steps, n_updates):
    """It learns once a batch. Its learning rate fell as if it learnt as often as the students."""
    game = LaserTag(height=4, width=4, min_side=3, max_steps=8)
    teacher = Teacher("neg_return", teacher_of(game), DENSE, PPO(lr_final=0.0))
    agent = AgentPop(PPOAgent(DENSE.build(game.observation_space, game.action_space), PPO(), 20))
    built = SelfPlayMethod(n_parallel=4, n_steps=n_steps, levels=teacher).build(game, agent, 4)
    assert built.levels.agent.n_total_updates == n_updates


def test_bad_settings_are_refused():
    agent = agent_of()
    with pytest.raises(ValueError, match=r"runner.n_opponents is 3: it must divide the 8 rows \(try 2\)"):
        SelfPlayMethod(n_parallel=8, n_opponents=3).build(GAME, agent, 8)
    sfl = SFLSettings(n_scored=16, n_kept=8, n_episodes=3)  # scored by three games on each level
    with pytest.raises(ValueError, match=r"runner.n_opponents is 16: it must divide the 24 rows"):
        SelfPlayMethod(n_parallel=8, n_evals=2, n_opponents=16, levels=sfl).build(GAME, agent, 8)
    with pytest.raises(ValueError, match=r"runner.scripted is 1.5: it must be between 0 and 1"):
        SelfPlayMethod(scripted=1.5)
    with pytest.raises(ValueError, match=r"runner.scripted is 0.5: Race has no written player with these settings"):
        SelfPlayMethod(n_parallel=8, scripted=0.5).build(GAME, agent, 8)
    with pytest.raises(ValueError, match=r"runner.every is 0: it must be at least 1"):
        SelfPlayMethod(every=0)
    with pytest.raises(ValueError, match=r"runner.uniform is 1.5: it must be between 0 and 1"):
        MaestroMethod(uniform=1.5)
    with pytest.raises(ValueError, match=r"runner.plr.parallel is True"):
        MaestroMethod(plr=PLRSettings(parallel=True))
    with pytest.raises(ValueError, match=r"no mutation is registered for Race"):
        SelfPlayMethod(**SMALL, levels=ACCELSettings()).build(GAME, agent, 8)


# ------------------------------------------------------------------------------------------------------------- MAESTRO


@pytest.mark.deep
def test_with_one_co_player_it_is_plr_against_it():
    one = SMALL | {"capacity": 1, "every": 1000}
    joint, reports = stepped(SelfPlayMethod(**one | {"n_opponents": 1}, levels=BUFFER), 8)
    maestro, again = stepped(MaestroMethod(**one, plr=BUFFER), 8)
    same(joint.students, maestro.students)
    buffers = maestro.curriculum.buffers
    same(joint.curriculum.levels.buffer, jax.tree.map(lambda x: x[0], buffers))
    same(joint.curriculum.bank, maestro.curriculum.bank)
    assert any(r["replay_share"] == 1 for r in reports)
    assert [r["replay_share"] for r in reports] == [r["replay_share"] for r in again]


@pytest.mark.deep
def test_without_scores_and_replay_it_is_fictitious_self_play():
    never = PLRSettings(capacity=16, replay_prob=0.0, robust=False)
    settings = SMALL | {"n_opponents": 1}
    joint, reports = stepped(SelfPlayMethod(**settings, levels=never, opponents=FictitiousSelfPlaySettings()), 9)
    maestro, again = stepped(MaestroMethod(**settings, plr=never, uniform=1.0), 9)
    same(joint.students, maestro.students)
    same(joint.curriculum.bank, maestro.curriculum.bank)
    ages = [float(r["maestro/age"]) for r in again]
    assert len(set(ages)) > 1  # it has met more than the newest
    assert len(reports) == len(again)


def test_an_old_co_player_leaves_its_levels_and_the_others_keep_theirs():
    for seed in range(N_SEEDS):
        n_joined = 0
        for step in steps_of("maestro"):
            before, after = (at_seed(x.curriculum, seed) for x in (step.before, step.after))
            record = after.bank.record
            met = record.n_added - 1 - step.report.metrics["maestro/age"][seed]
            newest = int(np.argmax(record.serial))
            due = step.before.clock[seed] % 2 == 0
            if due:
                n_joined += 1
                assert int(after.buffers.filled[newest].sum()) <= 4  # one batch: what was in its place has gone
            for slot, serial in enumerate(record.serial):
                if serial != met and not (due and slot == newest):
                    same(before.buffers.filled[slot], after.buffers.filled[slot])
            assert not after.buffers.filled[record.serial < 0].any()
        assert n_joined == 4


@pytest.mark.deep
def test_a_new_co_player_comes_first_and_an_old_one_leaves_its_levels():
    agent = agent_of()
    runner = trained_with(GAME, agent, MaestroMethod(**SMALL | {"capacity": 3}, plr=BUFFER, uniform=0.0))
    state, step = runner.init(KEY), jax.jit(runner.step)
    for clock in range(12):
        before = state.curriculum
        state, metrics = step(state)
        after = state.curriculum
        if clock % 2 == 0:
            assert metrics["maestro/age"] == 0  # the one that has just joined, for it has no levels
            slot = int(np.argmax(after.bank.record.serial))
            newest = jax.tree.map(lambda x, slot=slot: x[slot], after.buffers)
            assert int(newest.filled.sum()) <= 8  # one batch: what was in its place has gone
            others = [i for i in range(3) if i != slot]
            for i in others:
                same(*(b.buffers.filled[i] for b in (before, after)))
        filled = np.asarray(after.buffers.filled)
        assert not filled[np.asarray(after.bank.record.serial) < 0].any()


def test_the_co_player_of_the_highest_score_is_met():
    agent = agent_of()
    maestro = MaestroMethod(**SMALL, plr=BUFFER, uniform=0.25).build(GAME, agent, 8)
    state = jax.device_get(jax.eval_shape(maestro.init, KEY))
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), (state.bank.record, state.buffers))
    record = zeros[0].replace(serial=np.array([4, 1, 2, -1], np.int32), n_added=np.int32(5))
    bank, buffers = banks.Bank((), record), zeros[1].replace(scores=np.full(zeros[1].scores.shape, -np.inf, np.float32))

    @jax.jit
    def choose(bank, buffers):
        keys = jax.random.split(KEY, (2, 4000))
        return jax.vmap(maestro.chosen, (0, 0, None, None))(*keys, bank, buffers)

    def shares(scores):
        filled, found = buffers.filled.copy(), buffers.scores.copy()
        for slot, some in scores.items():
            filled[slot, :2], found[slot, :2] = True, some
        slots = np.asarray(choose(bank, buffers.replace(filled=filled, scores=found)))
        return np.bincount(slots, minlength=4) / len(slots)

    scores = {0: [0.1, 0.2], 1: [0.9, 0.0], 2: [0.3, 0.4]}
    np.testing.assert_allclose(shares(scores), [0.25 / 3, 0.75 + 0.25 / 3, 0.25 / 3, 0.0], atol=0.02)
    # One without levels comes before all others.
    np.testing.assert_allclose(
        shares({0: scores[0], 1: scores[1]}), [0.25 / 3, 0.25 / 3, 0.75 + 0.25 / 3, 0.0], atol=0.02
    )
    # Of several without levels, the newest one; an empty slot never.
    found = shares({})
    assert found[0] > 0.8
    assert found[3] == 0


@dataclasses.dataclass(frozen=True)
class Sides(Race):
    """The level is a side, -1 or 1, and a number that says nothing. Seat 1 wins where it stands on the level's side."""

    def sample_level(self, key):
        return jax.random.randint(key, (), -40, 40, jnp.int32)

    def reset(self, key, level):
        state = RaceState(level=level, place=jnp.zeros(2, jnp.int32), time=jnp.zeros((), jnp.int32))
        return state, agents_opening(self.observe(state), progress=jnp.zeros(2))

    def step(self, key, state, action):
        # Action 0 is strong where the level is negative, 2 where it is positive, 1 never.
        strong = jnp.where(state.level < 0, action == 0, action == 2)
        reward = strong.astype(jnp.float32) - strong[::-1]
        yes = jnp.ones(2, bool)
        ts = agents_transition(self.observe(state), reward, yes, yes, ~yes, yes[0], (reward > 0).astype(jnp.float32))
        return state, ts


@pytest.mark.deep
def test_buffers_of_different_co_players_separate():
    """One co-player is strong on negative levels, the other on positive ones: the student's regret is there."""
    env, agent = Sides(), agent_of()
    one = jax.tree.map(lambda x: x[0], params_of(agent))
    strong = [biased(one, 0), biased(one, 2)]
    # "neg_return" is the regret here: the most that anybody can get against them there is 0.
    plr = PLRSettings(capacity=24, min_fill=1.0, score="neg_return", replay_prob=0.0, robust=False)
    settings = MaestroMethod(n_parallel=8, n_steps=1, capacity=2, every=1000, plr=plr, uniform=1.0)
    maestro = settings.build(env, agent, 8)
    state = maestro.init(KEY)
    bank = banks.Bank(
        params=jax.tree.map(lambda *xs: jnp.stack(xs), *strong),
        record=state.bank.record.replace(serial=jnp.array([0, 1], jnp.int32), n_added=jnp.int32(2)),
    )
    state = state.replace(bank=bank)
    weak = jax.tree.map(lambda x: x[None], biased(one, 1))
    students = CurrentStudents(BatchDuel(batch_of(env), agent.agent), agent, weak, 1)

    @jax.jit
    def step(key, clock, state):
        k_shared, k_own, k_play = jax.random.split(key, 3)
        state, batch = maestro.propose(k_shared, k_own, clock, state, students)
        return maestro.observe(k_own, clock, state, batch, students.play(k_play, batch))[0]

    for clock in range(1, 49):
        state = step(jax.random.fold_in(KEY, clock), jnp.int32(clock), state)
    levels, scores = np.asarray(state.buffers.levels), np.asarray(state.buffers.scores)
    assert state.buffers.filled.all()
    negative, positive = levels[0], levels[1]
    error = np.sqrt(negative.var() / 24 + positive.var() / 24)
    assert positive.mean() - negative.mean() > 2 * error
    assert (negative[scores[0] > 0] < 0).all()
    # A single buffer for both mixes the two sides.
    joint = SelfPlayMethod(n_parallel=8, n_steps=1, capacity=2, every=1000, n_opponents=2, levels=plr)
    mixed = joint.build(env, agent, 8)
    duel = duel_of(bank, jnp.arange(2, dtype=jnp.int32), one)
    pairs = CurrentStudents(BatchDuel(batch_of(env), agent.agent, 2), agent, weak, 1)
    levels_state = mixed.levels.init(KEY)

    @jax.jit
    def mixed_step(key, clock, state):
        k_shared, k_own, k_play = jax.random.split(key, 3)
        state, batch = mixed.levels.propose(k_shared, k_own, clock, state, pairs)
        outcome = pairs.play(k_play, batch.replace(duel=duel))
        return mixed.levels.observe(k_own, clock, state, batch, outcome)[0]

    for clock in range(1, 49):
        levels_state = mixed_step(jax.random.fold_in(KEY, clock), jnp.int32(clock), levels_state)
    found = np.asarray(levels_state.buffer.levels)
    assert 0.2 < (found > 0).mean() < 0.8
    assert level_batch(levels_state.buffer.levels).duel == ()


# -------------------------------------------------------------------------------------------------- outside of the loop


class WithKeys(OpponentHost):
    """Draws with the keys of a compiled run in the place of its own."""

    draw_key: jax.Array

    def _keys(self, numbers):
        return jnp.broadcast_to(self.draw_key, numbers.shape)


@jax.jit
def key_of_opponents(seed, clock):
    """The key that a step of the runner gives to its opponents."""
    k_propose = jax.random.split(jax.random.fold_in(seed, clock), 4)[0]
    return jax.random.split(k_propose, 3)[1]


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_the_host_of_other_trainings_draws_and_books_what_selfplay_does(seed):
    """Draw by draw, from the run's own keys; the games are read off the records before and after each step."""
    steps = [jax.tree.map(lambda x: x[seed], (step.before, step.after)) for step in steps_of("selfplay")]
    core = FictitiousSelfPlay(2)
    host, met = WithKeys(core), set()
    for before, after in steps:
        clock = int(before.clock)
        old, new = before.curriculum.bank.record, after.curriculum.bank.record
        if clock % 2 == 0:
            serial = host.add_agent(jax.tree.map(lambda x: x[0], before.students.params))
            slot = int(np.flatnonzero(new.serial == serial)[0])
            same(host.agent(serial), jax.tree.map(lambda x, s=slot: x[s], after.curriculum.bank.params))
        host.draw_key = key_of_opponents(before.seed, clock)
        (drawn,) = host.draw_opponents(1)
        # What has joined has no games yet.
        n_before = np.where(old.serial == new.serial, old.n_games, 0)
        played = np.flatnonzero(new.n_games != n_before)
        assert [int(new.serial[slot]) for slot in played] == [drawn]
        met.add(int(drawn))
        for slot in played:
            places = np.arange(n_before[slot], new.n_games[slot]) % banks.WINDOW
            outcomes = new.outcomes[slot, places].astype(int) - banks.DRAW  # 1 for a win, -1 for a loss
            host.report_games(np.full(len(outcomes), drawn), outcomes, 0)
        same(host._record, new)
        host._forget_block()  # the next step has another key
    assert len(met) > 2
