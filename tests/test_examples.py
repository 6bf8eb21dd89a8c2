"""The pages' Python and the examples: what people copy runs, and what is said to learn learns."""

import dataclasses
import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest
from doc_blocks import python_blocks, run_blocks
from tiny_run import save_tiny_run

import minimax_lib

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.deep
def test_every_block_of_the_page_on_loading_runs(tmp_path, capsys):
    pytest.importorskip("gymnasium")
    pytest.importorskip("gymnax")
    save_tiny_run(tmp_path / "runs" / "my-run", {"name": "plr", "capacity": 8})
    tag = {"name": "LaserTag", "height": 7, "width": 7, "max_side": 7, "max_steps": 8}
    save_tiny_run(tmp_path / "runs" / "my-tag", {"name": "selfplay", "capacity": 2}, env=tag)
    names = run_blocks(ROOT / "docs" / "loading.md", tmp_path)
    assert names["episode"].length <= names["episode"].env.max_steps
    assert (tmp_path / "levels.png").stat().st_size > 1000
    assert "params/params/value/bias float32 (1,)" in capsys.readouterr().out
    assert names["oldest"].copy_number == min(names["tag"].copies)


@pytest.mark.deep
def test_every_block_of_the_page_on_task_curricula_elsewhere_runs(tmp_path):
    pytest.importorskip("gymnasium")
    names = run_blocks(ROOT / "docs" / "portable.md", tmp_path)
    assert names["again"].n_drawn == names["host"].n_drawn > 100


@pytest.mark.deep
def test_the_locks_of_the_page_on_gymnasium_are_opened_in_order(tmp_path):
    pytest.importorskip("gymnasium")
    names = run_blocks(ROOT / "docs" / "with_gymnasium.md", tmp_path)
    p = np.exp(names["logits"]) / np.exp(names["logits"]).sum(axis=1, keepdims=True)
    assert p[np.arange(12), names["CODE"]][:8].min() > 0.9
    assert (tmp_path / "tasks.csv").stat().st_size > 1000


def test_an_error_in_a_block_is_that_of_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\n```bash\nexit 1\n```\n\n```python\ny = x\n\nz\n```\n")
    assert python_blocks(page) == [(4, "x = 1\n"), (12, "y = x\n\nz\n")]
    with pytest.raises(NameError, match="'z'") as error:
        run_blocks(page, tmp_path)
    assert error.traceback[-1].lineno + 1 == 14
    page.write_text("no Python")
    with pytest.raises(AssertionError, match="has no ```python block"):
        run_blocks(page, tmp_path)


@pytest.mark.deep
def test_ones_own_ppo_learns(monkeypatch):
    own = example("own_ppo")
    monkeypatch.setattr(own, "N_ENVS", 16)
    monkeypatch.setattr(own, "N_STEPS", 32)
    corridor = minimax_lib.make_env("AMaze", height=1, width=4, n_walls=0, max_steps=16)
    _, reward, episodes = own.train(corridor, n_updates=30)
    assert np.isfinite(reward).all()
    assert own.solved_rate(episodes[-5:]) > 0.9 > 0.6 > own.solved_rate(episodes[:2])


def test_each_episode_of_ones_own_ppo_counts_once():
    """In its first update, only what is solved is short enough to end: a mean of rates would be 55% here."""
    assert example("own_ppo").solved_rate(np.array([[2, 2], [1, 10]])) == pytest.approx(0.25)


@pytest.mark.deep
def test_stable_baselines_trains_through_gymnasium():
    """Only where it is installed: it needs torch, which is large."""
    pytest.importorskip("stable_baselines3")
    before, after = example("gymnasium_ppo").main(n_steps=65_536, n_episodes=200)
    assert after[1] > before[1] + 0.1


@pytest.mark.deep
def test_ones_own_ppo_on_minigrid_plays_the_tasks_of_a_curriculum(monkeypatch):
    pytest.importorskip("minigrid")
    own = example("task_gymnasium_ppo")
    monkeypatch.setattr(own, "N_STEPS", 16)
    params, host = own.train("plr", n_updates=12, n_envs=4)
    assert host.n_told["results"] > 0
    assert host.metrics()["tasks/seen"] > 0
    assert 0 <= own.solved(params, own.HELD_OUT, n_most=2) <= 1


@pytest.mark.deep
def test_phasic_policy_gradient_plays_the_tasks_of_a_curriculum(monkeypatch):
    """The auxiliary phase teaches the policy's network the value, and leaves its actions nearly as they are."""
    pytest.importorskip("minigrid")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own = example("task_gymnasium_ppg")
    monkeypatch.setattr(own, "N_STEPS", 16)
    monkeypatch.setattr(own, "N_PHASE", 3)
    learn, changes = own.learn, []

    def watched(loss, n_epochs, n_minibatches, learner, key, batch):
        after = learn(loss, n_epochs, n_minibatches, learner, key, batch)
        if loss is own.auxiliary_loss:
            found = [own.NETWORK.apply(params, batch["obs"]) for params, _ in (learner, after)]
            errors = [np.square(auxiliary - batch["target"])[batch["counts"]].mean() for _, auxiliary, _ in found]
            gap = np.abs(jax.nn.softmax(found[0][0]) - jax.nn.softmax(found[1][0])).max()
            changes.append((*errors, gap))
        return after

    monkeypatch.setattr(own, "learn", watched)
    params, host = own.train("plr", n_updates=6, n_envs=4)
    assert len(changes) == 2
    for before, after, gap in changes:
        assert after < before
        assert gap < 0.1
    assert host.missing() is None
    assert 0 <= own.solved(params, own.HELD_OUT, n_most=2, act=own.act) <= 1


@pytest.mark.deep
def test_accel_makes_the_levels_of_the_real_minigrid_in_ones_own_ppo(monkeypatch):
    pytest.importorskip("minigrid")
    own = example("levels_minigrid_ppo")
    monkeypatch.setattr(own, "N_STEPS", 16)
    rooms = dataclasses.replace(own.ROOMS, family=dataclasses.replace(own.ROOMS.family, max_steps=16))
    monkeypatch.setattr(own, "ROOMS", rooms)
    few = dataclasses.replace(own.CURRICULA["accel"], capacity=16, min_fill=0.25, replay_prob=1.0)
    monkeypatch.setitem(own.CURRICULA, "accel", few)
    params, host, counts = own.train("accel", n_rollouts=4, n_envs=4)
    assert counts == {"new": 1, "replay": 2, "mutation": 1}
    assert host.n_reported == 4
    assert 0 <= own.solved(params, "MiniGrid-Empty-5x5-v0", n_episodes=1) <= 1


@pytest.mark.deep
def test_stable_baselines_plays_the_tasks_of_a_curriculum():
    for module in ("minigrid", "stable_baselines3"):
        pytest.importorskip(module)
    host = example("task_sb3").main("MiniGrid-Empty-Random-5x5-v0", n_steps=512, n_envs=4)
    assert host.missing() is None
    assert host.n_told["results"] > 0


@pytest.mark.deep
def test_pistons_play_the_tasks_of_a_curriculum():
    pytest.importorskip("pettingzoo.butterfly.pistonball_v6", exc_type=ImportError)
    host = example("task_pettingzoo").main(n_episodes=3, max_cycles=5)
    assert host.n_told["results"] == host.n_drawn == 3


@pytest.mark.deep
def test_rllib_plays_the_tasks_of_a_curriculum():
    pytest.importorskip("ray.rllib", exc_type=ImportError)
    told = example("task_rllib").main(n_iterations=1, n_workers=1)
    assert told["results"] > 0
    assert told["tasks/range"] == 0.25


@pytest.mark.deep
def test_stable_baselines_plays_against_copies_of_itself(tmp_path):
    for module in ("pettingzoo", "stable_baselines3"):
        pytest.importorskip(module)
    own = example("opponents_sb3")
    host, _, shares = own.main("pfsp", n_steps=768, n_envs=4, every=1, n_games=2)
    assert list(host.serials) == [0, 1, 2]
    assert sum(host.n_games().values()) == host.n_told["results"] > 20
    assert [len(each) for each in shares] == [1, 2, 3]
    own.draw(shares, tmp_path / "opponents.png")


@pytest.mark.deep
def test_agents_in_worker_processes_have_a_curriculum_each(tmp_path):
    pytest.importorskip("pettingzoo")
    own = example("task_pettingzoo_workers")
    hosts, shares = own.main(n_rounds=12, n_envs=2)
    assert [host.n_told["results"] for host in hosts.values()] == [24, 24]
    own.draw(shares, tmp_path / "agents.png")
