"""Several agents as rows: one agent is the single-agent path, the dead change nothing, and each fault is found."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, Batch, PPOAgent
from minimax_lib.curricula.experience import episode_mean
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.episode_replay import EpisodePLR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.curricula.scores import SCORES, over_agents
from minimax_lib.curricula.tasks.listed import listed_levels
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.matrix_game import MATCHING_PENNIES, UNEVEN_ROCK_PAPER_SCISSORS, MatrixGame
from minimax_lib.envs.multi_agent import BatchMultiEnv, MultiAgentEnvironment, batch_of
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.restarts import FreshLevels, SameLevel
from minimax_lib.envs.spaces import Box, Dict
from minimax_lib.envs.wrappers import FrameStack, StepCost, TimeLimit
from minimax_lib.evaluation.held_out import EvalRunner, Evaluation
from minimax_lib.models.settings import LSTM, FeedForward
from minimax_lib.playing.returns import Layout
from minimax_lib.playing.rollout import Rollout, rollout
from minimax_lib.playing.students import CurrentStudents
from minimax_lib.reward_normalization import RewardNormalization
from minimax_lib.runners.build import trained_with
from minimax_lib.testing.envs import check_multi_agent
from tests.islands import Islands, IslandsWithGoals, Walk

KEY = jax.random.key(3)
WALK, ALONE, FOUR = Walk(), Islands(n_agents=1), Islands()


DENSE, MEMORY = FeedForward(dense_width=8, head_width=8), LSTM(memory_width=4, head_width=8)


def agent_of(env, model=DENSE, n=1, **settings):
    network = model.build(env.observation_space, env.action_space)
    return AgentPop(PPOAgent(network, PPO(n_epochs=1, lr=1e-2, **settings), 10), n)


def same(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        x, y = (jax.random.key_data(z) if jnp.issubdtype(z.dtype, jax.dtypes.prng_key) else z for z in (x, y))
        np.testing.assert_array_equal(x, y)


def played_by(env, batch, agent, n_rows, n_steps=24):
    """(the parameters of a new agent, its rollout) on the host."""

    @jax.jit
    def play():
        params = agent.init(KEY, jnp.zeros(3)).params
        levels = jax.vmap(env.sample_level)(jax.random.split(KEY, n_rows))
        return params, rollout(KEY, batch, agent, params, levels, n_steps).replace(final=None)

    return jax.device_get(play())


# ------------------------------------------------------------------------------------------------- the environment


TAG = {"height": 5, "width": 5, "min_side": 3, "max_steps": 8}


@pytest.mark.parametrize(
    "env",
    [
        FOUR,
        MatrixGame(MATCHING_PENNIES),
        pytest.param(MatrixGame(UNEVEN_ROCK_PAPER_SCISSORS), marks=pytest.mark.deep),
        pytest.param(LaserTag(**TAG), marks=pytest.mark.deep),
        pytest.param(
            LaserTag("lanctot", layout="small2", zero_sum=True, max_steps=8, view_front=3, view_side=2),
            marks=pytest.mark.deep,
        ),
    ],
)
def test_environments_conform(env):
    check_multi_agent(env, KEY, 4)


def broken(name, sentence, change):
    """`Islands` whose time step, or state, is changed by `change(state before, state, ts)`."""

    class Broken(Islands):
        def step(self, key, state, action):
            after, ts = super().step(key, state, action)
            return change(state, after, ts, action)

    marks = () if name in ("reward", "shape") else pytest.mark.deep
    return pytest.param(dataclasses.dataclass(frozen=True)(Broken)(), sentence, id=name, marks=marks)


def heard(state, action):
    """i32[], the sum of what the dead have done."""
    return jnp.where(state.alive, 0, action).sum(dtype=jnp.int32)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        broken("reward", "dead agent gets a reward", lambda s, a, ts, _: (a, ts.replace(reward=ts.reward - 0.1))),
        broken("sight", "dead agent sees something", lambda s, a, ts, _: (a, ts.replace(obs=ts.obs + 1.0))),
        broken("risen", "stay dead", lambda s, a, ts, _: (a, ts.replace(playing=jnp.ones_like(ts.playing)))),
        broken("twice", "ends twice", lambda s, a, ts, _: (a, ts.replace(terminated=ts.terminated | ~ts.playing))),
        broken("early", "somebody's life is not", lambda s, a, ts, _: (a, ts.replace(over=jnp.ones((), bool)))),
        broken("never", "not over after max_steps", lambda s, a, ts, _: (a, ts.replace(over=jnp.zeros((), bool)))),
        broken("deaf", "dead agent changes", lambda s, a, ts, act: (a.replace(names=a.names + heard(s, act)), ts)),
        broken("order", "in another order", lambda s, a, ts, _: (a, ts.replace(reward=ts.reward.at[0].mul(2)))),
        broken("shape", "the time step changes", lambda s, a, ts, _: (a, ts.replace(reward=ts.reward.sum()))),
    ],
)
def test_each_fault_is_found(env, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_multi_agent(env, KEY, 4)


def test_a_game_that_does_not_add_up_is_found():
    class Generous(MatrixGame):
        def step(self, key, state, action):
            after, ts = super().step(key, state, action)
            return after, ts.replace(reward=ts.reward + 1.0)

    with pytest.raises(AssertionError, match=r"add up to 2\.0"):
        check_multi_agent(Generous(), KEY, 2)


# ------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.deep
@pytest.mark.parametrize("restart", ["same", "fresh"])
def test_one_agent_is_the_single_agent_path_bit_for_bit(restart):
    runs = []
    for env in (WALK, ALONE):
        rule = SameLevel() if restart == "same" else FreshLevels(env.sample_level)
        runs.append(played_by(env, batch_of(env, restart=rule), agent_of(WALK, MEMORY), 6)[1])
    single, several = (run.replace(steps=run.steps.replace(valid=None, facts={})) for run in runs)
    same(single, several)
    assert runs[0].steps.done.sum() > 10
    assert bool(runs[1].steps.valid.all())


def test_only_an_environment_of_several_agents_has_rows_for_them():
    assert type(batch_of(WALK)) is BatchEnv
    assert type(batch_of(FOUR)) is BatchMultiEnv


@pytest.mark.deep
@pytest.mark.parametrize(
    "settings", [DR(n_parallel=4, n_steps=12), PLR(n_parallel=4, n_steps=12, capacity=8, min_fill=0.5)]
)
def test_training_with_one_agent_is_that_of_the_single_agent(settings):
    states = []
    for env in (WALK, ALONE):
        runner = trained_with(env, agent_of(WALK), settings)
        state, step = runner.init(KEY), jax.jit(runner.step)
        for _ in range(4):
            state, metrics = step(state)
        states.append((state.students, metrics["return"], metrics["solved_rate"]))
    same(states[0][1:], states[1][1:])
    for x, y in zip(jax.tree.leaves(states[0][0]), jax.tree.leaves(states[1][0]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)  # a mean over valid steps divides by their number


@functools.cache
def played():
    """(an agent, its parameters, a rollout of 6 copies of `FOUR`)."""
    agent = agent_of(FOUR)
    return agent, *played_by(FOUR, batch_of(FOUR), agent, 6)


@functools.cache
def learning(n_minibatches):
    """(a new agent's state with the parameters of `played`, its update)."""
    agent = agent_of(FOUR, n_minibatches=n_minibatches)
    state = jax.jit(lambda: agent.init(KEY, jnp.zeros(3)))()
    return state.replace(params=played()[1]), jax.jit(agent.update)


def test_lives_by_a_plain_account():
    _, _, run = played()
    s = jax.tree.map(np.asarray, run.steps)
    n_steps, _, n_rows = s.reward.shape
    for environment in range(n_rows // 4):
        rows = range(4 * environment, 4 * environment + 4)
        alive, total, length = dict.fromkeys(rows, True), dict.fromkeys(rows, 0.0), dict.fromkeys(rows, 0)
        opens = True
        for t in range(n_steps):
            for row in rows:
                assert s.first[t, 0, row] == opens
                assert s.valid[t, 0, row] == alive[row]
                if not alive[row]:
                    assert (s.done[t, 0, row], s.reward[t, 0, row], s.discount[t, 0, row]) == (False, 0, 0)
                    continue
                total[row] += float(s.reward[t, 0, row])
                length[row] += 1
                assert s.episode_return[t, 0, row] == pytest.approx(total[row], abs=1e-5)
                assert s.facts["lifetime"][t, 0, row] == length[row]
                assert s.discount[t, 0, row] == 1.0 - s.done[t, 0, row]
                if s.done[t, 0, row]:
                    alive[row] = False
            opens = not any(alive.values())
            if opens:
                alive, total, length = dict.fromkeys(rows, True), dict.fromkeys(rows, 0.0), dict.fromkeys(rows, 0)
    assert 0.3 < s.valid.mean() < 0.9


def changed_where_dead(run: Rollout) -> Rollout:
    """The same rollout, in which the dead see, do and value something else."""
    dead = ~run.steps.valid
    noise = np.random.default_rng(0).normal(size=dead.shape).astype(np.float32)
    s = run.steps
    return run.replace(
        steps=s.replace(
            obs=np.where(dead[..., None], 5 * noise[..., None], s.obs),
            action=np.where(dead, 2 - s.action, s.action),
            value=np.where(dead, noise, s.value),
            log_prob=np.where(dead, -np.abs(noise), s.log_prob),
        )
    )


@pytest.mark.parametrize("n_minibatches", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_dead_agent_changes_nothing(n_minibatches):
    _, params, run = played()
    state, learn = learning(n_minibatches)
    one, losses = jax.device_get(learn(KEY, state, run))
    other, again = jax.device_get(learn(KEY, state, changed_where_dead(run)))
    # Not to the bit: where a step is not valid, its gradient is multiplied by 0, and added up.
    for x, y in zip(jax.tree.leaves((one, losses)), jax.tree.leaves((other, again)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    moved = [np.abs(x - y).max() for x, y in zip(jax.tree.leaves(one.params), jax.tree.leaves(params), strict=True)]
    assert max(moved) > 1e-3


def test_the_update_is_that_of_the_single_agents_on_the_same_steps():
    """Each agent is alone on its island: the same lives in a batch of `Walk` give the same gradient."""
    agent, params, run = played()
    batch = agent.agent
    rollouts = jax.tree.map(lambda x: x[:, 0] if x.ndim > 1 else x[0], run)
    rollouts = rollouts.replace(carry=jax.tree.map(lambda x: x[0], run.carry), last_value=run.last_value[0])
    advantage, target = jax.device_get(jax.jit(lambda r: r.advantages(batch.gamma, batch.gae_lambda))(rollouts))
    valid = np.asarray(rollouts.steps.valid)
    # By hand: the mean over the valid steps alone, of a batch that holds nothing else.
    whole = Batch(steps=rollouts.steps, carry=(), advantage=advantage, target=target, entropy_coef=np.float32(0.01))
    only = jax.tree.map(lambda x: x[valid][None] if x.ndim >= 2 else x, whole)
    only = dataclasses.replace(only, steps=only.steps.replace(valid=None))
    single = jax.tree.map(lambda x: x[0], params)
    gradient = jax.jit(lambda params, part: jax.grad(batch.loss, has_aux=True)(params, part)[0])
    gradients = [gradient(single, part) for part in (whole, only)]
    for x, y in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-6)


def test_advantages_of_the_living_do_not_see_the_dead():
    _, _, run = played()
    advantages = jax.jit(lambda run: run.advantages(0.99, 0.95)[0])
    one, other = (advantages(r) for r in (run, changed_where_dead(run)))
    valid = np.asarray(run.steps.valid)
    # Values of the living follow each other; where a life goes on in the next step, that step is valid too.
    np.testing.assert_array_equal(np.asarray(one)[valid], np.asarray(other)[valid])


def test_nobody_alive_is_no_gradient_and_no_nan():
    _, params, run = played()
    none = run.replace(steps=run.steps.replace(valid=np.zeros_like(run.steps.valid)))
    state, learn = learning(1)
    after, losses = learn(KEY, state, none)
    same(after.params, params)
    assert all(np.isfinite(x) for x in jax.tree.leaves(losses))


def test_relabelling_the_agents_relabels_the_rows():
    env, order = FOUR, np.array([2, 0, 3, 1])

    @jax.jit
    def both():
        key = jax.random.key(5)
        state, _ = env.reset(key, env.sample_level(key))

        def step(states, t):
            state, moved = states
            k_act, k_step = jax.random.split(jax.random.fold_in(key, t))
            action = jax.random.randint(k_act, (4,), 0, 3)
            state, one = env.step(k_step, state, action)
            moved, other = env.step(k_step, moved, action[order])
            return (state, moved), ((one.reward[order], one.obs[order]), (other.reward, other.obs))

        return jax.lax.scan(step, (state, env.relabelled(state, order)), jnp.arange(6))[1]

    same(*both())


# ------------------------------------------------------------------------------------------- scores, rewards, attempts


def test_scores_are_means_over_the_steps_of_the_living():
    values = np.array([[1.0, 1.0], [2.0, 9.0], [3.0, 9.0], [4.0, 5.0]], np.float32)[:, None]
    done = np.array([[0, 1], [0, 0], [1, 0], [1, 1]], bool)[:, None]
    valid = np.array([[1, 1], [1, 0], [1, 0], [1, 1]], bool)[:, None]
    found = jax.jit(lambda *args: episode_mean(*args[:2], 1, args[2]))(values, done, valid)[0]
    np.testing.assert_allclose(found, [(2.0 + 4.0) / 2, (1.0 + 5.0) / 2])


QUICK = ("learnability", "max")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=() if (name, how) == QUICK else pytest.mark.deep)
        for name in ("l1_value_loss", "return", "max_mc", "learnability")
        for how in ("max", "min", "mean")
    ],
)
def test_a_score_may_be_of_each_agent_alone(name, how):
    """As if each agent were a separate level, in a rollout that is put together by hand."""
    agent, params, run = played()
    best = np.array([0.1, 0.9, 0.4], np.float32)

    def rows_of(run, rows):
        own = run.replace(steps=jax.tree.map(lambda x: x[:, :, rows], run.steps))
        return own.replace(last_value=run.last_value[:, rows])

    @jax.jit
    def scores(run):
        outcome = RolloutOutcome(agent, params, run, layout=Layout(n_evals=8, n_agents=4))
        alone = [
            [
                # Its two evaluations.
                RolloutOutcome(
                    agent, params, rows_of(run, np.array([8 * b + g, 8 * b + 4 + g])), layout=Layout(n_evals=2)
                ).score(SCORES[name], best[b : b + 1])[0]
                for g in range(4)
            ]
            for b in range(3)
        ]
        return outcome.score(over_agents(SCORES[name], how), best), outcome.score(SCORES[name], best), alone

    found, pooled, alone = jax.device_get(scores(run))
    for b in range(3):
        known = [x for x in alone[b] if np.isfinite(x)]
        np.testing.assert_allclose(found[b], getattr(np, how)(known) if known else -np.inf, rtol=1e-5)
    assert how == "mean" or not np.allclose(found, pooled)


def test_the_pooled_score_is_that_of_one_agent():
    agent, params, run = played()

    @jax.jit
    def both(run):
        outcome = RolloutOutcome(agent, params, run, layout=Layout(n_evals=8))
        return [outcome.score(score, jnp.zeros(3)) for score in (SCORES["gae"], over_agents(SCORES["gae"], "max"))]

    one, other = both(run)
    np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r"a score that looks at updates"):
        over_agents(SCORES["parameter_change"], "max")
    with pytest.raises(ValueError, match=r"unknown reduction over agents 'maximum'.*did you mean 'max'"):
        over_agents(SCORES["gae"], "maximum")


def test_normalised_rewards_count_the_living_alone():
    _, _, run = played()
    rule = RewardNormalization()

    @jax.jit
    def learn(run):
        return rule.learn(rule.init(1).moments, rule.opening(1, run.steps.reward.shape[2]), run)

    moments, _, scaled = jax.device_get(learn(run))
    reward, done, valid = (np.asarray(x)[:, 0] for x in (run.steps.reward, run.steps.done, run.steps.valid))
    seen, g = [], np.zeros(reward.shape[1])
    for t in range(len(reward)):
        g = rule.discount * g + reward[t]
        seen.extend(g[valid[t]])
        g = np.where(done[t], 0.0, g)
    np.testing.assert_allclose(moments.variance[0], np.var(seen), rtol=1e-3)
    np.testing.assert_allclose(moments.mean[0], np.mean(seen), rtol=1e-3, atol=1e-4)
    assert np.isfinite(scaled.steps.reward).all()


def test_whole_lives_on_a_level():
    agent, params, _ = played()
    students = CurrentStudents(batch_of(FOUR), agent, params, 8)

    @jax.jit
    def attempt():
        levels = jax.vmap(FOUR.sample_level)(jax.random.split(KEY, 3))
        return students.attempts(KEY, levels, 2)

    attempts = jax.device_get(attempt())
    assert attempts.episodes.lengths.shape == (1, 3, 8)  # 2 episodes of 4 agents
    assert int(attempts.env_steps) == int(attempts.episodes.lengths.sum())
    assert 1 <= int(attempts.episodes.lengths.min()) <= int(attempts.episodes.lengths.max()) <= 9
    won = attempts.episodes.solved
    lost = attempts.episodes.returns - attempts.episodes.lengths * -0.1
    np.testing.assert_allclose(lost, np.where(won, 1.1, 0.0), atol=1e-5)  # a solved life has one step of 1, not -.1


@pytest.mark.deep
def test_an_evaluation_is_of_the_lives_of_all_agents():
    """Where the wolf takes everybody in the first step, a life is worth 1 at the goal, and -.1 elsewhere."""
    env = Islands(island=Walk(wolf=1.0))
    runner = EvalRunner(make_held_out(env, ["TrainingDistribution"]), agent_of(env).agent, 40)
    params = jax.tree.map(lambda x: x[0], agent_of(env).init(KEY, jnp.zeros(3)).params)
    result = jax.device_get(jax.jit(runner.evaluate)(KEY, params))
    n_won = (result.returns + 0.1) / 1.1 * 4
    np.testing.assert_allclose(n_won, np.round(n_won), atol=1e-4)
    assert len(set(np.round(n_won).ravel().tolist())) > 1
    np.testing.assert_allclose(result.solved, n_won / 4, atol=1e-6)  # the share of the agents
    assert (result.lengths == 1).all()


@pytest.mark.parametrize("shape", [(6, 5), (2,), (3, 4)])
def test_an_observation_without_the_axis_of_the_agents_is_refused_in_one_line(shape):
    """A part [6, 5] of a world of three agents was once reshaped into other numbers, without an error."""

    @dataclasses.dataclass(frozen=True)
    class Shared(Islands):
        observation_space = Dict((("map", Box(0.0, 1.0, (5,))), ("own", Box(-7.0, 9.0, (3,)))))

        def reset(self, key, level):
            state, ts = super().reset(key, level)
            return state, ts.replace(obs={"own": ts.obs, "map": jnp.zeros(shape, jnp.float32)})

    message = rf"^Shared: the observation\['map'\] has the shape \({shape[0]}, ?.*: with 3 agents it must be \(3, 5\)"
    with pytest.raises(ValueError, match=message) as error:
        batch_of(Shared(n_agents=3))
    assert "\n" not in str(error.value)


STACKED = FrameStack(IslandsWithGoals(), 2)
WRAPPED = {
    "stacked": STACKED,
    "costly": StepCost(IslandsWithGoals(), 0.1),
    "short": TimeLimit(Islands(), 4),
    "all": TimeLimit(StepCost(STACKED, 0.1), 5),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) for name in WRAPPED if name != "all"] + ["all"]
)
def test_a_wrapper_of_several_agents_is_an_environment_of_several_agents(name):
    env = WRAPPED[name]
    assert env.multi_agent
    assert env.n_agents == 4
    check_multi_agent(env, KEY, 2)


def test_agents_in_a_wrapper_are_each_as_alone_in_it():
    """On islands that do not touch, an agent's observations and rewards are those of a wrapper round its island."""
    wrap = lambda env: TimeLimit(StepCost(FrameStack(env, 2), 0.25), 5)  # noqa: E731
    four, one = wrap(Islands(island=Walk(wolf=0.0))), wrap(Walk(wolf=0.0))
    levels = jnp.array([[0, 6], [1, 2], [3, 3], [6, 4]], jnp.int32)
    state, ts = four.reset(KEY, levels)
    alone = [one.reset(KEY, level) for level in levels]
    for time in range(5):
        for g, (_, own) in enumerate(alone):
            if time == 0 or ts.playing[g] & ~ts.done[g]:
                np.testing.assert_array_equal(ts.obs[g], own.obs)
                np.testing.assert_allclose([ts.reward[g], ts.done[g]], [own.reward, own.done], atol=1e-6)
            else:
                assert not np.asarray(ts.obs[g]).any() or ts.over
        actions = jnp.full(4, 2, jnp.int32)
        state, ts = four.step(KEY, state, actions)
        alone = [one.step(KEY, own, 2) for own, _ in alone]
    assert ts.over


def test_agents_are_not_evaluated_greedily():
    env = Islands(island=Walk(wolf=1.0))
    with pytest.raises(ValueError, match=r"eval.greedy is True: it must be False, as Islands has 4 agents"):
        Evaluation(tasks=("TrainingDistribution",), greedy=True).build(env, agent_of(env).agent)


@pytest.mark.deep
def test_lives_that_outlast_a_rollout_go_on():
    settings = DR(n_parallel=3, n_steps=5)  # episodes have up to 9 steps
    runner = trained_with(FOUR, agent_of(FOUR), settings)
    assert runner.continues
    state, step = jax.jit(runner.init)(KEY), jax.jit(runner.step)
    for _ in range(5):
        state, metrics = step(state)
        assert all(np.isfinite(metrics[name]) for name in ("loss", "agents/alive"))
    assert 0 < float(metrics["agents/alive"]) < 1
    assert runner.env_steps_per_step == 3 * 4 * 5


def test_what_is_an_environment_of_several():
    assert isinstance(FOUR, MultiAgentEnvironment)
    assert not isinstance(WALK, MultiAgentEnvironment)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (EpisodePLR(), r"runner is 'episode_plr', and Islands has 4 agents: it knows one agent"),
        (PLR(score="parameter_change"), r"Islands has 4 agents: the score 'parameter_change' looks at updates"),
    ],
)
def test_what_needs_one_agent_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        trained_with(FOUR, agent_of(FOUR), settings)


@pytest.mark.deep
def test_the_agents_of_an_environment_share_its_task():
    """Results are those of every life, and an environment goes on to its next task when nobody lives."""
    n_rows, n_steps = 3, 10
    settings = TasksMethod(n_parallel=n_rows, n_steps=n_steps, n_levels=5)
    runner = trained_with(FOUR, agent_of(FOUR), settings)
    tasks, state = runner.curriculum, runner.init(KEY)
    levels = np.asarray(listed_levels(FOUR, 5)[0])  # [5, G, 2]
    step = jax.jit(lambda state: played_and_told(runner, state))
    alive, length = np.ones((n_rows, 4), bool), np.zeros((n_rows, 4), int)
    for _ in range(4):
        state, steps, queue, results = jax.device_get(step(state))
        place = np.zeros(n_rows, int)
        for t in range(n_steps):
            for b in range(n_rows):
                task = queue[b, place[b]]
                for g in range(4):
                    row = 4 * b + g
                    assert results.task[t, row] == task
                    assert steps.valid[t, 0, row] == alive[b, g]
                    if alive[b, g]:
                        assert steps.obs[t, 0, row, 1] == levels[task, g, 1]  # the goal that it sees
                        length[b, g] += 1
                    assert results.valid[t, row] == steps.done[t, 0, row]
                    if steps.done[t, 0, row]:
                        assert results.length[t, row] == length[b, g]
                        alive[b, g] = False
                if not alive[b].any():
                    alive[b], length[b] = True, 0
                    place[b] += 1
        np.testing.assert_array_equal(state.curriculum.current, [queue[b, place[b]] for b in range(n_rows)])
    assert tasks.n_agents == 4


def played_and_told(runner, state):
    """(the next state, the steps, the queues, the results that the curriculum is told) of a step of the runner."""
    clock, (shared_key, local) = state.clock, runner.keys(state)
    k_propose, k_rollout, k_update, _ = jax.random.split(local, 4)
    _, batch = runner.curriculum.propose(shared_key, k_propose, clock, state.curriculum, runner.students(state))
    played = runner.play(k_rollout, k_update, state, batch)
    results, _ = runner.curriculum.scoring.results(
        played.outcome.steps(runner.curriculum.score), state.curriculum.unfinished
    )
    return runner.step(state)[0], played.outcome.runs.steps, batch.queue.numbers, results
