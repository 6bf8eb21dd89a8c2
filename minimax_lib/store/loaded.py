"""A run on disk, loaded to be looked at and played with, as in a notebook."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.agents.base import Agent, TrainState
from minimax_lib.config import Config, to_dict
from minimax_lib.curricula.level_buffer import LevelBuffer
from minimax_lib.curricula.levels.ncc import NCCState
from minimax_lib.curricula.levels.sfl import SFLState
from minimax_lib.envs.against import Against, AgainstLevel, random_seat
from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.levels import fitted_level
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.jax_settings import check_settings
from minimax_lib.messages import shown
from minimax_lib.opponents.bank import Bank
from minimax_lib.playing.acting import (
    Episode,  # noqa: F401, callers find it here too
    act,
    drawn,
    episode_of,
    form_of,
    leading_axes,
    obs_form,
    opened,
    record,
)
from minimax_lib.playing.crowds import AnyEpisode, played, trained
from minimax_lib.playing.episodes import alone, mode, sample
from minimax_lib.runners.build import make_agent
from minimax_lib.runners.training import RunnerState
from minimax_lib.store.archive import archived
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.kept_copies import bank_of_seed, copy_in, slots_of
from minimax_lib.store.kept_levels import KeptLevels
from minimax_lib.store.named import named_run
from minimax_lib.store.origin import Origin, read_origins
from minimax_lib.store.parameters import save_params
from minimax_lib.store.saved import Run, archived_params, damage, restored_state
from minimax_lib.store.tables import KEYS, read_table
from minimax_lib.trees import parts_of, tree_size


def load_run(
    path: str | Path,
    plugins: Sequence[str] | None = None,
    checkpoint: int | Literal["latest"] = "latest",
    seed: int | None = None,
    student: int = 0,
) -> "LoadedRun":
    """The run in the folder `path`, with the parameters of one seed (by default the first) and student of it.

    `path` may also be its config.yaml, its name in `runs/`, or the name of a trained agent that ships with the package,
    such as maze/sfl. A run of that name comes first. Of an agent and of an archived update there are the parameters
    alone.

    `plugins` are modules to import first. Modules that the folder names are imported only if they are named here: a run
    with plugins is refused unless `plugins` is given, and `plugins=()` goes on without. Nothing in the folder is
    changed. ValueError in one line where there is no such run, or not that checkpoint, seed or student of it.
    """
    check_settings()
    path, run = named_run(path, plugins, checkpoint)
    from minimax_lib.store.checkpoint import CheckpointError  # slow: not before the checks

    try:
        found = opened_run(run).of(seed, student)
    except CheckpointError as error:
        raise ValueError(str(error)) from None
    # The run is read again later, when the working directory may be another.
    return dataclasses.replace(found, run=dataclasses.replace(run, folder=RunFolder(path.absolute())))


def opened_run(run: Run) -> "LoadedRun":
    """The run at the update that `run` names, with its first seed; CheckpointError if it cannot be read."""
    if run.archive is not None:
        return LoadedRun(run, *_archived_state(run), run.seeds[0])
    restored = restored_state(run)
    for update, why in restored.damaged.items():
        warnings.warn(damage(run, restored, update, why), stacklevel=3)
    return LoadedRun(run, restored.update, restored.state, run.seeds[0])


def _archived_state(run: Run) -> tuple[int, RunnerState]:
    """(number of updates, a state that has parameters and nothing else) from the archive of `run`."""
    update, params = archived_params(run)
    students = TrainState(params=params, opt_state=None, n_updates=jnp.full(len(run.seeds), update, jnp.int32))
    return update, RunnerState(clock=None, seed=None, students=students, curriculum=None)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedRun:
    """A run, one checkpoint of it, and one seed and student of that checkpoint."""

    run: Run
    update: int  # the checkpoint
    state: RunnerState  # all of it: seeds, students, what the curriculum remembers
    seed: int
    student: int = 0
    copy_number: int | None = None  # of the frozen copy in the bank whose parameters these are; None: the student's own

    def __repr__(self) -> str:
        copy = "" if self.copy_number is None else f", copy {self.copy_number}"
        return (
            f"LoadedRun({self.run.name!r}, update {self.update}, seed {self.seed} of {_choice(self.seeds)}, "
            f"student {self.student} of {_choice(range(self.n_students))}{copy})"
        )

    def of(self, seed: int | None = None, student: int = 0) -> "LoadedRun":
        """The same run and checkpoint, with the parameters and levels of another seed (None: this one) or student."""
        seed = self.seed if seed is None else seed
        if seed not in self.seeds:
            raise ValueError(f"seed is {shown(seed)}: {self.run.name} has {_choice(self.seeds)}")
        if student not in range(self.n_students):
            raise ValueError(f"student is {shown(student)}: {self.run.name} has {_choice(range(self.n_students))}")
        return dataclasses.replace(self, seed=int(seed), student=int(student), copy_number=None)

    def copy(self, number: int) -> "LoadedRun":
        """The same run with the parameters of one of `copies`: it acts and plays as the student did when it joined.

        Levels, tables and all else stay those of the run; `of` leads back to the student. ValueError where there is no
        such copy.
        """
        if number not in self.copies:
            raise ValueError(
                f"copy is {shown(number)}: the bank of {self.run.name}, seed {self.seed}, has "
                f"{', '.join(map(str, self.copies)) or 'none'}"
            )
        return dataclasses.replace(self, copy_number=int(number))

    @property
    def path(self) -> Path:
        """The folder."""
        return self.run.folder.path

    @property
    def _folder(self) -> RunFolder:
        """The folder. ValueError where it has gone: then its tables are not empty, but missing."""
        if not self.path.is_dir():
            raise ValueError(f"{str(self.path)!r} is not a folder any more: load the run again from where it is now")
        return self.run.folder

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.run.config

    @property
    def env(self) -> Environment:
        """The environment."""
        return self.config.env

    @functools.cached_property
    def agent(self) -> Agent:
        """One student, without its parameters."""
        return make_agent(self.config).agent

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the run."""
        return self.run.seeds

    @property
    def n_students(self) -> int:
        """The number of students of each seed."""
        return self.config.runner.n_students

    @property
    def checkpoints(self) -> list[int]:
        """The checkpoints that the folder holds now, each the number of its updates, the oldest first."""
        return saved_updates(self._folder.checkpoints)

    @property
    def archive(self) -> dict[int, Path]:
        """The files of the archive (`--archive-every`) by the number of their updates, the oldest first.

        `load_params` reads such a file: the parameters of all seeds S and students A, [S, A, ...].
        """
        return archived(self._folder.archive)

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """metrics.csv by column, of all seeds: numbers, or text where a column has some; empty if there is no table.

        A warning says which lines are left out. ValueError in one line where none can be read.
        """
        return _columns(self._folder.metrics)

    @property
    def evals(self) -> dict[str, np.ndarray]:
        """eval.csv by column, likewise."""
        return _columns(self._folder.evaluations)

    @property
    def origins(self) -> list[Origin]:
        """The versions and machines that the run was trained with, the first one first; empty for older runs."""
        return read_origins(self._folder.origin)

    @functools.cached_property
    def params(self) -> Any:
        """The parameters of this seed's student: their average over the updates, if the run keeps one.

        Those that training goes on with are in `state.students.params`. Of a copy, they are the copy's.
        """
        own = jax.tree.map(lambda x: _at(x, self._place, self.student), self.state.students.evaluated)
        if self.copy_number is None:
            return own
        return jax.tree.map(jnp.asarray, copy_in(self._bank, slots_of(self._bank)[self.copy_number], own))

    @property
    def copies(self) -> tuple[int, ...]:
        """The numbers of the student's frozen copies in the bank of this seed, the oldest first.

        The first copy that ever joined has the number 0. ValueError where the run keeps no bank.
        """
        return tuple(slots_of(self._bank))

    @functools.cached_property
    def _bank(self) -> Bank:
        return bank_of_seed(self.run, self.state.curriculum, self._place)

    @functools.cached_property
    def curriculum(self) -> Any:
        """What the curriculum of this seed remembers.

        Where several devices divided a batch, what belongs to one device leads with an axis of devices.
        """
        return jax.tree.map(lambda x: _at(x, self._place), self.state.curriculum)

    @property
    def level_buffer(self) -> KeptLevels:
        """The levels that this seed keeps to replay them, those of all devices; ValueError where it keeps none."""
        if self.run.archive is not None:
            raise ValueError(f"{self.run.parameters_alone}: levels are in checkpoints")
        for part in parts_of(self.curriculum, LevelBuffer):
            known = (part.filled, part.scores, part.best_returns, part.ages, part.n_mutations)
            return self._kept(part.levels, *known, part.ancestors or None)
        for part in parts_of(self.curriculum, SFLState):
            # The first batch is scored before it is played: since then every slot is filled.
            return self._kept(part.levels, np.full(part.learnability.shape, self.update > 0), part.learnability)
        for part in parts_of(self.curriculum, NCCState):
            return self._kept(part.levels, np.full(part.scores.shape, True), part.scores)
        raise ValueError(f"{self.path} keeps no levels: its runner is {to_dict(self.config)['runner']['name']!r}")

    def _kept(self, levels: Level, *slots: Any) -> KeptLevels:
        parts = jax.device_get((levels, *slots))
        n_leading = np.ndim(slots[0])  # slots, and before them devices, or co-players that have a buffer each
        return KeptLevels(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[n_leading:]), parts))

    @property
    def _place(self) -> int:
        return self.seeds.index(self.seed)

    def export(self, path: str | Path) -> Path:
        """Writes the parameters of this seed's student as an .npz file, for `load_params` and any other program.

        See `save_params`. The text `about` in it says where they are from.
        """
        config = to_dict(self.config)
        about = {"update": self.update, "seed": self.seed, "student": self.student, "config": config}
        about |= {} if self.copy_number is None else {"copy": self.copy_number}
        return save_params(path, self.params, about)

    def act(self, obs: Any, carry: Any = None, first: Any = None, key: jax.Array | None = None) -> tuple[Any, Any]:
        """(action, memory after it), for one observation or for rows of them [R, ...].

        `carry` is the memory from the call before; None is an empty one, with which an episode begins. `first` (bool,
        or bool[R]) says that an observation opens an episode although memory is given, and clears that memory.
        Without a `key` the action is the most likely one, with a key it is drawn from the policy. Of an environment
        with several agents, an observation is that of one agent, and those of all agents are rows.
        """
        obs, n_rows = self._rows(obs)
        shape = (1,) if n_rows is None else (n_rows,)
        fresh = carry is None
        carry = self.agent.init_carry(shape) if fresh else carry
        sizes = {x.shape[0] for x in jax.tree.leaves(carry)}
        if sizes - {shape[0]}:
            raise ValueError(f"carry is the memory of {sizes.pop()} rows: obs has {shape[0]}")
        opens = jnp.broadcast_to(jnp.asarray(fresh if first is None else first, bool), shape)
        choose, key = (mode, jax.random.key(0)) if key is None else (sample, key)
        action, carry = act((self.env, self.agent, choose), key, self.params, obs, carry, opens | fresh)
        return (jax.tree.map(lambda x: x[0], action) if n_rows is None else action), carry

    def _rows(self, obs: Any) -> tuple[Any, int | None]:
        """(obs [R, ...] in the types that the agent was trained on, R; None if `obs` was a single one)."""
        forms = obs_form(self.env)
        leading = leading_axes(obs, forms)
        if leading is None or len(leading) > 1:
            raise ValueError(f"obs is {form_of(obs)}: it must be {form_of(forms)}, or rows of such")
        obs = jax.tree.map(lambda x, form: jnp.asarray(x, form.dtype), obs, forms)
        return (obs, leading[0]) if leading else (jax.tree.map(lambda x: x[None], obs), None)

    def play(self, level: Level | str | None = None, key: jax.Array | None = None, greedy: bool = False) -> AnyEpisode:
        """An episode of the agent on `level`: one of the environment, the name of a held-out task, or a random one.

        The same `key` gives the same episode; without one it is `jax.random.key(0)`. In a game for two, a held-out task
        brings the player of the other seat. On other levels a random player sits there, in a random seat. In a world of
        more agents, the policy has all seats.
        """
        k_level, k_play = jax.random.split(jax.random.key(0) if key is None else key)
        env = self._env_for_one()
        if level is None:
            level = env.sample_level(k_level)
        elif isinstance(level, str):
            held_out = self._held_out((level,))
            if len(held_out.names) > 1:
                raise ValueError(f"level is {level!r}, a group of {len(held_out.names)}: name one of them")
            env, sampled = held_out.env, held_out.sample(k_level, 1)
            level = jax.tree.map(lambda x: x[0, 0], sampled)
        else:
            level = fitted_level(self.env, level)
            if env is not self.env:
                level = AgainstLevel(level, jnp.zeros((), jnp.int32), random_seat(k_level))
        return self._played(env, jax.tree.map(lambda x: x[None], level), k_play, greedy)[0]

    def _env_for_one(self) -> Environment:
        """The environment, with a random player in the other seat of a game for two."""
        return Against(self.env) if self.env.multi_agent and self.env.n_agents == 2 else self.env

    def play_tasks(
        self, tasks: str | Sequence[str], key: jax.Array | None = None, greedy: bool = False
    ) -> Mapping[str, AnyEpisode]:
        """An episode of the agent on each of the held-out tasks, by name. Groups of tasks have names too."""
        k_level, k_play = jax.random.split(jax.random.key(0) if key is None else key)
        held_out = self._held_out(tasks)
        levels = jax.jit(lambda key: jax.tree.map(lambda x: x[:, 0], held_out.sample(key, 1)))(k_level)
        return dict(zip(held_out.names, self._played(held_out.env, levels, k_play, greedy), strict=True))

    def _held_out(self, tasks: str | Sequence[str]) -> HeldOut:
        rules = {} if self.config.eval.protocol is None else {"protocol": self.config.eval.protocol}
        return make_held_out(self.env, tasks_of_run(tasks, self.config.runner), **rules)

    def _played(self, env: Any, levels: Level, key: jax.Array, greedy: bool) -> Sequence[AnyEpisode]:
        """An episode on each of `levels` [R, ...]."""
        if env.multi_agent:
            return played(trained(env, self.agent, mode if greedy else sample), key, self.params, levels)
        episodes = alone(env, self.agent, mode if greedy else sample)
        recording, levels = jax.device_get((record(episodes, key, (self.params,), levels), levels))
        return [episode_of(env, recording, levels, row) for row in range(tree_size(levels))]

    def draw(self, levels: Level, captions: Sequence[str] = (), columns: int = 6) -> np.ndarray:
        """u8[H, W, 3]: the levels [n, ...] as episodes open on them; ValueError where the environment draws none."""
        keys, levels = jax.random.split(jax.random.key(0), tree_size(levels)), jax.tree.map(jnp.asarray, levels)
        states = jax.device_get(opened(self.env, keys, levels))
        return drawn(self.env, jax.tree.map(lambda x: x[None], states), captions, columns)


def _at(x: jax.Array, *place: int) -> jax.Array:
    """`x[place]`, without a program that is compiled for each shape."""
    return x[place] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(np.asarray(x)[place])


def _columns(path: Path) -> dict[str, np.ndarray]:
    columns, rows = read_table(path, KEYS)
    return {name: _column([row[name] for row in rows]) for name in columns}


def _column(cells: list[str]) -> np.ndarray:
    """Numbers, NaN where a cell is empty; text if some cell is not a number."""
    try:
        return np.array([float(cell or "nan") for cell in cells])
    except ValueError:
        return np.array(cells)


def _choice(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
