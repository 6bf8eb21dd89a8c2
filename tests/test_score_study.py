"""`minimax-evaluate --scores`: rank correlations by hand, what can be studied, and a study of a small agent."""

import jax
import numpy as np
import pytest
from scipy.stats import spearmanr

from minimax_lib.commands.score_study import table_of, written
from minimax_lib.config.evaluate import parse
from minimax_lib.curricula.scores import SCORES
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.evaluation.score_study import LEARNABLE, REGRET, SOLVABLE, ScoreStudent, ScoreStudy, rank_correlation
from minimax_lib.store.tables import read_table
from minimax_lib.testing.curricula import small_agent
from tests.probes import Probe
from tests.test_solved import Coin

OF_ANY_SCALE = ("policy_entropy", "least_confidence", "min_margin", "return", "neg_return", "value_disagreement")
ENV = AMaze(height=3, width=3, n_walls=4, max_steps=8)


def made_up(n: int = 60) -> ScoreStudy:
    """`good` goes with p (1 - p), `bad` goes with levels that cannot be solved, `unknown` has no score on half."""
    rng = np.random.default_rng(0)
    rates = rng.integers(0, 6, n) / 5
    solvable = np.where(rates > 0, 1.0, rng.integers(0, 2, n))
    learnable = rates * (1 - rates)
    half = np.where(np.arange(n) % 2, rng.normal(size=n), np.nan)
    scores = {"bad": 1 - solvable, "unknown": half, "flat": np.ones(n), "good": np.exp(5 * learnable)}
    return ScoreStudy(scores, {LEARNABLE: learnable, REGRET: 1 - rates, SOLVABLE: solvable}, rates)


def test_rank_correlations_are_spearmans():
    found = made_up()
    rows = {row["score"]: row for row in found.correlations()}
    for name, values in found.scores.items():
        known = np.isfinite(values)
        assert rows[name]["n_levels"] == known.sum()
        for target, x in found.targets.items():
            expected = np.nan if name == "flat" else spearmanr(values[known], x[known]).statistic
            np.testing.assert_allclose(rows[name][target], expected, atol=1e-12)
    assert next(iter(rows)) == "good"
    assert rows["good"][LEARNABLE] == pytest.approx(1)
    assert rows["bad"][SOLVABLE] == pytest.approx(-1)
    assert list(rows)[-1] == "flat"  # it says nothing
    assert np.isnan(rank_correlation(np.ones(1), np.ones(1)))


def test_what_is_written(tmp_path):
    found = made_up(12)
    table = table_of("title", found)
    assert [column.header for column in table.columns] == ["score", LEARNABLE, REGRET, SOLVABLE, "levels"]
    # On half of the levels, no episode ended in the rollout: they are in no correlation of this score.
    names, counts = (list(table.columns[place].cells) for place in (0, -1))
    assert dict(zip(names, counts, strict=True)) == {"good": "12", "bad": "12", "unknown": "6", "flat": "12"}
    assert "no episode ended in the rollout" in str(table.caption)
    del found.scores["unknown"]
    assert [column.header for column in table_of("title", found).columns] == ["score", LEARNABLE, REGRET, SOLVABLE]
    found = made_up(12)
    for _ in range(2):  # the same study makes no second file
        paths = written(tmp_path, "update3-seed5-scores", 5, found)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    _, rows = read_table(paths[1], ("seed",))
    assert len(rows) == 12
    assert {row["seed"] for row in rows} == {"5"}
    assert float(rows[3]["good"]) == pytest.approx(found.scores["good"][3])


def test_a_picture_that_somebody_else_has_put_there_is_kept(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "scores.png").write_bytes(b"mine")
    paths = written(tmp_path, "scores", 5, made_up(12))
    assert [path.name for path in paths] == ["scores.csv", "scores-levels.csv", "scores-2.png"]
    assert (tmp_path / "scores.png").read_bytes() == b"mine"


def test_every_score_is_studied_or_left_out_with_a_reason():
    student = ScoreStudent(ENV, small_agent(ENV).agent, 16, 2)
    assert set(student.names) | set(student.left_out) == set(SCORES.names())
    assert {"max_mc", "mna", "exact_regret", "parameter_change", "value_disagreement"} <= set(student.names)
    assert "compares students" in student.left_out["relative_regret"]
    assert "several rows" in student.left_out["learnability"]
    assert "a model of its own" in student.left_out["novelty"]
    normalised = ScoreStudent(ENV, small_agent(ENV).agent, 16, 2, normalizes=True)
    assert normalised.names == [name for name in student.names if name in OF_ANY_SCALE]
    assert "rewards were normalised" in normalised.left_out["l1_value_loss"]
    probe = ScoreStudent(Probe(), small_agent(Probe()).agent, 16, 2)
    assert "best return" in probe.left_out["exact_regret"]
    game = LaserTag(height=4, width=4, min_side=3, max_steps=6)
    with pytest.raises(ValueError, match="LaserTag has 2 agents: scores are studied with one agent"):
        ScoreStudent(game, small_agent(game).agent, 16, 2)


def test_a_study_of_a_small_agent():
    """An untrained agent of a few cells: levels that it cannot solve have no regret and a rate of 0."""
    agent = small_agent(ENV)
    student = ScoreStudent(ENV, agent.agent, 16, 4)
    student.names = ["positive_value_loss", "return"]  # fewer compile faster
    obs = jax.eval_shape(lambda: ENV.reset(jax.random.key(0), ENV.sample_level(jax.random.key(0)))[1].obs)
    params = jax.jit(lambda key: agent.agent.init(key, jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), obs)))(
        jax.random.key(1)
    ).params
    found = student.study(jax.random.key(2), params, 24)
    assert set(found.targets) == {LEARNABLE, REGRET, SOLVABLE}
    assert all(len(x) == 24 for x in (*found.scores.values(), *found.targets.values(), found.rates))
    np.testing.assert_allclose(found.targets[LEARNABLE], found.rates * (1 - found.rates), atol=1e-6)
    lost = found.targets[SOLVABLE] == 0
    assert 0 < lost.sum() < 24
    assert not found.rates[lost].any()
    assert not found.targets[REGRET][lost].any()
    assert (found.targets[REGRET] >= 0).all()
    rows = {row["score"]: row for row in found.correlations()}
    assert rows["return"][SOLVABLE] > 0.1


def test_where_rows_play_levels_in_turn_a_score_is_of_one_episode_as_in_training():
    """An episode returns 1 after 3 steps, or 0 after 9. In 36 steps, a row that keeps its level has many of them."""
    env = Coin("maze")
    agent = small_agent(env).agent
    params = jax.jit(lambda key: agent.init(key, jax.numpy.int32(0)).params)(jax.random.key(1))
    found = []
    for n in (1, 4):
        student = ScoreStudent(env, agent, 4 * env.max_steps, 1, levels_per_row=n)
        assert ("parameter_change" in student.left_out) == (n > 1)
        student.names = ["return"]
        found.append(student.study(jax.random.key(2), params, 30).scores["return"])
    each, in_turn = found
    assert len(in_turn) == 30
    known = in_turn[np.isfinite(in_turn)]
    assert len(known) > 20
    assert np.isin(known, (0, 1)).all()
    assert not np.isin(each, (0, 1)).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run", "x", "--scores", "--robust"], "robust is True, which means nothing with --scores"),
        (["--run", "x", "--scores", "--greedy"], "greedy is True, which means nothing with --scores"),
        (["--compare", "x", "--scores"], "compare is .*, which means nothing with --scores"),
        (["--run", "x", "--scores", "--tasks", "hard"], "tasks is 'hard', which means nothing with --scores"),
    ],
    ids=["robust", "greedy", "compare", "tasks"],
)
def test_what_does_not_go_together_is_refused_in_one_line(words, message):
    with pytest.raises(ValueError, match=message):
        parse(words)


def test_its_defaults():
    settings = parse(["--run", "x", "--scores"])
    assert (settings.episodes, settings.n_levels) == (20, 10_000)
