"""The commands of README and docs run.

`minimax-train` does all that it does for the command line, and then trains a toy of a few lines in place of the
compiled program. The other commands stand in a folder of finished runs, which were never trained: their states and
tables are made up. The held-out tasks are two mazes. What an agent does there is made up too, so that no network is
compiled. A sweep is planned, not trained. `test_docs.py` parses the commands of all pages.
"""

import csv
import dataclasses
import fnmatch
import functools
import glob
import importlib
import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_docs import BLOCK, DOCS, GUIDES, ROOT, ours, runs_here, shell_commands, stand_in, text_of
from tiny_run import tiny_config, tiny_states
from toy_program import EVALUATION, toy_program

from minimax_lib.config import Config, save_yaml, to_dict
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.registry import FAMILIES
from minimax_lib.evaluation.matches import CrossPlay, CrossTable
from minimax_lib.experiment import run as experiment
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.playing.episodes import Played, WholeEpisodes
from minimax_lib.store.checkpoint import Checkpoints
from minimax_lib.store.loaded import Episode, LoadedRun
from minimax_lib.trees import tree_size

PAGES = [page for page in GUIDES if page.name != "extending.md" and any(map(ours, shell_commands(page)))]
TASKS = ("SixteenRooms", "Labyrinth")
UPDATES = (2, 4)
LIBRARIES = {  # what stands in a command -> the library that it needs
    "gymnax": "gymnax",
    "craftax": "craftax",
    "--wandb": "wandb",
    "--tensorboard": "tensorboardX",
    "mp4": "imageio_ffmpeg",
}
REPLAY, MUTATE = {"name": "plr", "capacity": 6}, {"name": "accel", "capacity": 6}
SELFPLAY = {"name": "selfplay", "capacity": 2, "n_opponents": 2}
RUNS: list[tuple[dict[str, Any], dict[str, int]]] = [  # runner; name of a run -> its seed
    ({"name": "dr"}, {"dr-s0": 0, "dr-s1": 1, "sweeps/lr/lr-1": 2, "sweeps/lr/lr-2": 3, "doors-dr": 4}),
    (REPLAY, {"plr-s0": 0, "plr-s1": 1, "my-run": 2, "robust-plr-25": 3}),
    (MUTATE, {"accel-s0": 0, "accel-s1": 1, "accel-s2": 2, "accel": 3, "my-accel": 4, "doors-accel": 5}),
    ({"name": "paired"}, {"my-paired": 0}),
    (SELFPLAY, {"my-tag": 0, "fsp-s0": 1}),
    (SELFPLAY | {"opponents": "pfsp"}, {"pfsp-s0": 0}),
]
SHIPPED = ("maze/sfl", "maze/dr")
ENVS = {"selfplay": {"env": {"name": "LaserTag", "height": 5, "width": 5, "max_steps": 4}}}  # by runner


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """The folder of `finished`, with the maze that the page on evaluation shows."""
    folder = tmp_path_factory.mktemp("reader")
    (maze,) = [
        text for kind, text in BLOCK.findall(text_of(DOCS / "evaluation.md")) if kind == "text" and "#G#" in text
    ]
    (folder / "my_maze.txt").write_text(maze)
    return folder


def finished(folder: Path, page: Path) -> None:
    """Makes the finished runs that the page speaks of, where they are not in the folder yet."""
    text = text_of(page)
    for runner, seeds in RUNS:
        states: list[Any] = []
        for name, seed in seeds.items():
            run = folder / "runs" / name
            if run.exists() or not is_spoken_of(name, text):
                continue
            config = tiny_config(run, runner, seed=seed, **ENVS.get(runner["name"], {}))
            states = states or tiny_states(config, len(UPDATES))
            run.mkdir(parents=True)
            save_yaml(config, run / "config.yaml")
            with Checkpoints(run / "checkpoints", keep=len(UPDATES), config=to_dict(config)) as checkpoints:
                for update, state in zip(UPDATES, states, strict=True):
                    checkpoints.save(update, state)
            make_tables(run, seed)
    # In place of the trained agents that ship: a folder of that name comes first, and this one is quick to play.
    for name in SHIPPED:
        if name in text and not (folder / name).exists():
            shutil.copytree(folder / "runs" / "dr-s0", folder / name)


def is_spoken_of(run: str, text: str) -> bool:
    """Whether the run, or a pattern that it fits, stands in the text."""
    patterns = set(re.findall(r"runs/[\w./*-]*", text))
    always = {"dr-s0", "plr-s0"}  # what `files` makes of runs/*, and what stands for the shipped agents
    return run in always or any(fnmatch.fnmatch(f"runs/{run}", found) for found in patterns - {"runs/*"})


def make_tables(folder: Path, seed: int) -> None:
    """metrics.csv and eval.csv of four updates."""
    row = {"seed": seed, "env_steps": 100, "seconds": 3, "steps_per_second": 10, "return": 0.5, "level/n_walls": 4}
    table(folder / "metrics.csv", [{"update": i, "clock": i, "solved_rate": i / 4} | row for i in (1, 2, 3, 4)])
    scores = [(update, i, task) for update in (0, 4) for i, task in enumerate(TASKS)]
    row = {"seed": seed, "return": 0.5}
    table(folder / "eval.csv", [{"update": n, "task": task, "solved_rate": 0.2 * i} | row for n, i, task in scores])


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@functools.cache
def program(n_seeds: int) -> Any:
    return toy_program(Config(n_seeds=n_seeds))


def toy(config: Config, *_: Any) -> ExperimentRunner:
    """Trains four updates of the configuration, with nothing of it on a device. What was built for it is unused."""
    short = dataclasses.replace(config, n_updates=4, log_every=2, checkpoint_every=2, archive_every=0, report=False)
    return ExperimentRunner(short, program(config.n_seeds), EVALUATION)


def play(self: WholeEpisodes, key: jax.Array, params: Any, levels: Any) -> Played:
    """Episodes whose outcomes are drawn by lot."""
    solved = jax.random.bernoulli(key, 0.5, (tree_size(levels),)).astype(jnp.float32)
    discounted = () if self.discount is None else solved
    return Played(solved, jnp.ones(solved.shape, jnp.int32), solved, facts={}, discounted=discounted)


def play_tasks(self: LoadedRun, tasks: Any, key: Any = None, greedy: bool = False) -> dict[str, Episode]:
    """Episodes of two steps, in which nothing moves."""
    held_out, n_states = self._held_out(tasks), 3
    levels = jax.tree.map(lambda x: x[:, 0], held_out.sample(jax.random.key(0), 1))
    keys = jax.random.split(jax.random.key(0), len(held_out.names))
    states = jax.device_get(jax.jit(jax.vmap(held_out.env.reset))(keys, levels)[0])
    episodes = {}
    for i, name in enumerate(held_out.names):
        level, state = jax.tree.map(lambda x, i=i: x[i], (levels, states))
        states_of_episode = jax.tree.map(lambda x: np.stack([x] * n_states), state)
        how = {"episode_return": 0.5, "length": n_states - 1, "progress": 1.0, "facts": {}}
        episodes[name] = Episode(held_out.env, level, states_of_episode, **how)
    return episodes


def meet(self: CrossPlay, key: jax.Array, entrants: Any, pairs: Any, levels: Any, track: Any = iter) -> CrossTable:
    """Ten games on each level, half of them won."""
    booked = np.zeros((3, len(entrants), len(entrants), tree_size(levels)), np.int64)
    for i, j in pairs:
        booked[:, i, j] = booked[:, j, i] = [[5], [0], [10]]
    return CrossTable(tuple(entrant.name for entrant in entrants), *booked)


def files(word: str) -> list[str]:
    """What a shell makes of a word."""
    if word == "runs/*":
        return ["runs/dr-s0", "runs/plr-s0"]  # two runs are enough
    return sorted(glob.glob(word)) or [stand_in(word) or word]


def small(command: str, words: list[str]) -> list[str]:
    """The words of a command as a shell gives them, with few levels, and so that no sweep is trained or W&B called."""
    words = [name for word in words for name in files(word)]
    if "--n-episodes" in words:  # worlds of many agents are played, of which nothing is made up
        words[words.index("--n-episodes") + 1] = "2"
    if command == "minimax-sweep" and "--slurm" not in words:
        return [word for word in words if word != "--dry-run"] + ["--dry-run"]
    if "--robust" in words:
        return [*words, "--n-levels", "4"]
    if "--wandb" in words and "offline" not in words:
        return [word for given in words for word in ([given, "offline"] if given == "--wandb" else [given])]
    return words


def missing(words: list[str]) -> list[str]:
    """The libraries that a command needs and that are not here."""
    text = " ".join(words).lower()
    return [name for word, name in LIBRARIES.items() if word in text and importlib.util.find_spec(name) is None]


def commands_of(page: Path) -> list[list[str]]:
    """The page's commands that are run, without those about finished runs that stand on an earlier page too."""
    earlier = [words for other in PAGES[: PAGES.index(page)] for words in shell_commands(other)]
    found = [words for words in shell_commands(page) if ours(words) and runs_here(words) and not missing(words)]
    return [words for words in found if words[0] == "minimax-train" or words not in earlier]


def test_the_trainings_of_the_first_pages_run(reader, tmp_path, monkeypatch, capsys):
    """All other commands and pages are deep; `test_docs.py` parses them for everybody."""
    found = [*commands_of(ROOT / "README.md"), *commands_of(DOCS / "index.md")]
    trainings = [words for words in found if ours(words)[0] == "minimax-train"]
    assert len(trainings) >= 5
    run_commands(trainings, reader, tmp_path, monkeypatch, capsys)


@pytest.mark.deep
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, reader, tmp_path, monkeypatch, capsys):
    finished(reader, page)
    run_commands(commands_of(page), reader, tmp_path, monkeypatch, capsys)


def run_commands(commands, reader, tmp_path, monkeypatch, capsys) -> None:
    """Runs them one after another; none may fail or say nothing."""
    maze = FAMILIES[AMaze]
    monkeypatch.setitem(FAMILIES, AMaze, dataclasses.replace(maze, groups=dict.fromkeys(maze.groups, TASKS)))
    monkeypatch.setattr(experiment, "ExperimentRunner", toy)
    monkeypatch.setattr(WholeEpisodes, "play", play)
    monkeypatch.setattr(CrossPlay, "play", meet)
    monkeypatch.setattr(LoadedRun, "play_tasks", play_tasks)
    (sweep,) = [text for _, text in BLOCK.findall(text_of(DOCS / "sweeps.md")) if "config: maze/cpu/dr" in text]
    (tmp_path / "lr.yaml").write_text(sweep)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    places = {"minimax-sweep": tmp_path}  # where a command stands that is not about finished runs
    for i, typed in enumerate(commands):
        command, words = ours(typed)
        if command == "minimax-train" and "--resume" not in words:
            places[command] = folder_of_configs(tmp_path / str(i))
        monkeypatch.chdir(places.get(command, reader))
        assert status_of(command, small(command, words)) == 0, (typed, capsys.readouterr().err)
        assert capsys.readouterr().out
    for cls in [cls for cls, family in FAMILIES.items() if family.name in ("Race", "Doors")]:
        FAMILIES.pop(cls)  # the plugins of pages


def status_of(command: str, words: list[str]) -> Any:
    """The exit status."""
    try:
        return importlib.import_module(f"minimax_lib.{command.removeprefix('minimax-')}").main(words)
    except SystemExit as left:  # after --help and --list
        return left.code


def test_a_command_that_fails_is_noticed(reader, monkeypatch, capsys):
    monkeypatch.chdir(reader)
    assert status_of("minimax-report", ["runs/none"]) == 2
    assert status_of("minimax-train", ["--list"]) == 0
    assert "runs/none" in capsys.readouterr().err


def folder_of_configs(folder: Path) -> Path:
    """A new folder in which `configs` and `docs` are what they are in a checkout."""
    folder.mkdir()
    (folder / "docs").symlink_to(DOCS)
    (folder / "configs").symlink_to(ROOT / "minimax_lib" / "configs")
    return folder
