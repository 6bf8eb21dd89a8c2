"""Settings without an effect are refused where somebody says one, and nowhere else."""

import dataclasses

import jax
import pytest

from minimax_lib.config import Config, from_dict, parse, save_yaml
from minimax_lib.config.idle import IDLE
from minimax_lib.config.shipped import shipped
from minimax_lib.config.words import as_typed
from minimax_lib.curricula.base import Students
from minimax_lib.envs.maze import AMaze
from minimax_lib.runners.build import make_agent

REFUSED = [  # a row of the table each
    ("--ppo.no-normalize-advantages", "--ppo.advantages-over rollout", "ppo.normalize_advantages False"),
    ("--eval.every 0", "--eval.n-episodes 3", "eval.every 0"),
    ("--env GridWorld --env.observation full", "--env.view-size 9", "env.observation 'full'"),
    ("--runner plr --runner.parallel", "--runner.replay-prob .8", "runner.parallel True"),
    ("--runner plr --runner.generator finite", "--runner.capacity 9", "runner.generator 'finite'"),
    ("--runner plr --runner.generator accel", "--runner.generator.robust false", "runner.generator 'accel'"),
    (
        "--runner episode_plr --runner.schedule proportionate",
        "--runner.replay-prob .5",
        "runner.schedule 'proportionate'",
    ),
    ("--runner plr --runner.prioritisation greedy", "--runner.temperature .1", "runner.prioritisation 'greedy'"),
    ("--runner accel", "--runner.n-parents 2", "runner.selection 'batch'"),
    (
        "--env LaserTag --runner selfplay --runner.opponents sp",
        "--runner.n-opponents 2",
        "runner.opponents 'sp' and runner.scripted 0.0",
    ),
    (
        "--runner tasks --runner.core sfl",
        "--runner.max-score-coef .5",
        "runner.core 'sfl' and runner.levels 'uniform'",
    ),
    ("--runner tasks --runner.core tscl", "--runner.core.temperature .1", "runner.core.transform 'eps_greedy'"),
    (
        "--runner tasks --runner.core.staleness 0",
        "--runner.core.staleness-transform rank",
        "runner.core.staleness 0.0",
    ),
    (
        "--runner tasks --runner.core.staleness-transform constant",
        "--runner.core.staleness-temperature .1",
        "runner.core.staleness_transform 'constant'",
    ),
    (
        "--runner tasks",
        "--runner.core.eps .1",
        "runner.core.transform 'rank' and runner.core.staleness_transform 'power'",
    ),
    ("--runner tasks --runner.core sfl", "--runner.core.k 3", "runner.core.sampling 'dist'"),
    (
        "--env LaserTag --runner selfplay --runner.opponents pfsp --runner.opponents.weighting var",
        "--runner.opponents.exponent 3",
        "runner.opponents.weighting 'var'",
    ),
    ("--runner tasks --runner.core omni", "--runner.core.boring .5", "runner.core.interesting ''"),
]


def refusal(words: list[str]) -> str:
    with pytest.raises(ValueError, match="has no effect with") as error:
        parse(words)
    return as_typed(str(error.value), words)


def test_there_is_a_command_line_for_every_row():
    assert len(REFUSED) == len(IDLE)


@pytest.mark.parametrize(("others", "idle", "why"), REFUSED, ids=[idle for _, idle, _ in REFUSED])
def test_a_flag_without_an_effect_is_refused(others, idle, why):
    parse(others.split())
    flag, value = idle.split()
    assert refusal([*others.split(), flag, value]) == (
        f"{flag} is {value!r}: leave it out, as it has no effect with {why}"
    )


@pytest.mark.parametrize("core", ["tscl", "frontier", "sequential", "stratified", "online_sfl", "omni"])
def test_without_scores_it_does_not_matter_how_they_are_made(core):
    assert f"runner.core '{core}'" in refusal(["--runner", "tasks", "--runner.core", core, "--runner.tail", "drop"])


def test_the_share_of_the_most_learnable_is_one_of_topk():
    words = ["--runner", "tasks", "--runner.core", "sfl", "--runner.core.q", "0.5"]
    assert "no effect with runner.core.sampling 'dist'" in refusal(words)
    parse([*words, "--runner.core.sampling", "topk"])


@pytest.mark.parametrize(
    "words",
    [
        "--runner accel --runner.selection easy --runner.n-parents 2",
        "--runner accel --runner.n-parallel 2",  # fewer rows than parents, of which there are none
        "--runner tasks --runner.core tscl --runner.core.eps .1",
        "--runner tasks --runner.max-score-coef .5",
        "--runner tasks --runner.core sfl --runner.core.sampling topk --runner.core.k 3",
        "--env LaserTag --runner selfplay --runner.opponents sp --runner.scripted .5 --runner.n-opponents 2",
        "--env LaserTag --runner selfplay --runner.levels plr --runner.levels.no-robust",
        "--runner cenie --runner.rank-temperature .1",
    ],
)
def test_what_has_an_effect_is_taken(words):
    parse(words.split())


@pytest.mark.parametrize("name", shipped())
def test_no_shipped_configuration_says_anything_without_an_effect(name):
    parse(["--config", name])


def test_what_a_later_source_makes_useless_is_no_mistake_of_an_earlier_one(tmp_path):
    plr, both = tmp_path / "plr.yaml", tmp_path / "both.yaml"
    plr.write_text("runner: {name: plr, replay_prob: 0.8}")
    both.write_text("runner: {name: plr, parallel: true, replay_prob: 0.8}")
    parse([str(plr), "--runner.parallel"])
    parse([str(both), "--runner.no-parallel"])
    parse([str(both), "--runner", "dr"])
    reason = "leave it out, as it has no effect with runner.parallel True"
    assert refusal([str(both)]) == f"runner.replay_prob is 0.8: {reason}"
    assert refusal([str(both), "--runner.n-steps", "8"]) == f"runner.replay_prob is 0.8: {reason}"
    assert refusal([str(plr), "--runner.parallel", "--runner.replay-prob", "0.8"]) == (
        f"--runner.replay-prob is '0.8': {reason}"
    )


def test_a_file_that_says_everything_is_taken(tmp_path):
    """A run's own one, also of a version that took the combination; a copy of one with the defaults; a resume."""
    config = from_dict({"runner": {"name": "plr", "parallel": True}})
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "copies").mkdir()
    copy = tmp_path / "copies" / "copy.yaml"
    save_yaml(config, copy)
    assert parse([str(copy)]) == config
    older = dataclasses.replace(config, runner=dataclasses.replace(config.runner, replay_prob=0.8))
    save_yaml(older, tmp_path / "config.yaml")
    assert parse([str(tmp_path / "config.yaml")]) == older
    save_yaml(older, copy)
    assert parse([str(copy), "--resume"]) == dataclasses.replace(older, resume=True)
    assert "replay_prob is 0.8: leave it out" in refusal([str(copy)])


def test_a_run_that_goes_on_says_what_it_has_said(tmp_path):
    """It was begun by a version that took the combination, and may not be resumed with another configuration."""
    words = ["--runner", "accel", "--runner.n-parents", "2", "--log-dir", str(tmp_path), "--name", "run", "--resume"]
    assert "leave it out" in refusal(words)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    assert parse(words).runner.n_parents == 2


def test_python_takes_them():
    """There it cannot be told what somebody has said."""
    from_dict({"runner": {"name": "accel", "n_parents": 2}})


def proposed(config: Config) -> str:
    """What a curriculum does, as text: equal where nothing that is computed differs."""
    agent = make_agent(config)
    curriculum = config.runner.build(config.env, agent, config.runner.n_parallel)
    key, clock = jax.random.key(0), jax.numpy.int32(0)
    state = jax.eval_shape(curriculum.init, key)
    students = Students  # not looked at
    return str(jax.make_jaxpr(lambda key, state: curriculum.propose(key, key, clock, state, students))(key, state))


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"name": "plr", "generator": {"name": "finite", "n_levels": 8}}, {"capacity": 3}),
        ({"name": "accel"}, {"n_parents": 2}),
        ({"name": "plr", "capacity": 8, "schedule": "proportionate"}, {"replay_prob": 0.9}),
    ],
)
def test_the_programs_of_two_values_are_one(settings, idle):
    maze = AMaze(height=3, width=3, n_walls=1)
    small = {"n_parallel": 4, "n_steps": 4}
    one, other = (
        dataclasses.replace(from_dict({"runner": settings | small | more}), env=maze, n_updates=252)
        for more in ({}, idle)
    )
    assert one != other
    assert proposed(one) == proposed(other)
