"""The trials of a sweep as a study of Optuna, which is kept in the journal file of the sweep's folder.

Optuna chooses the values and ends trials early. The journal says which trials there are, and what has become of them.
Whether a run is finished, its own checkpoints say. Optuna is imported here and nowhere else.
"""

import contextlib
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import optuna
import yaml
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from minimax_lib.config import Config
from minimax_lib.config.idle import refuse_idle_in_all
from minimax_lib.config.sweep import DIGITS, MOST_TRIALS, Choices, ScoreSettings, Sweep, SweepKeys
from minimax_lib.config.tree import flat, to_tree
from minimax_lib.files import MOST_TABLE, holds, naming, opened, read_bytes
from minimax_lib.messages import one_line
from minimax_lib.store.files import copy_aside, saved_updates, write_atomically
from minimax_lib.sweeps.runs import NOTES, Check, SweepRun, fingerprint, refuse_same, run_of

FILE, JOURNAL, OLD = "sweep.yaml", "journal.log", "old_sweeps"
BASE = "config"  # Optuna's name for the choice of what a trial starts from
FAILURE = "failure"  # an attribute of a trial: [why its last process failed, when]
DRAWS, MOST_DRAWS = 100, 200_000  # of random trials: for each of them, and in all, before it gives up
PATIENCE = 60.0  # seconds to wait for other processes of the same sweep, which write: an array may start many
FINISHED, PRUNED, FAILED, UNFINISHED, WAITING = "finished", "ended early", "failed", "unfinished", "not started"

optuna.logging.set_verbosity(optuna.logging.ERROR)


class SweepStudy:
    """The trials of a sweep, by number from 1. ValueError in one line where one of them is impossible."""

    def __init__(self, sweep: Sweep, check: Check) -> None:
        self.sweep, self.folder, keys = sweep, sweep.folder, sweep.keys
        self._check = check
        self._kinds: dict[str, Choices] = {BASE: list(sweep.bases), **sweep.vary}
        self._planned = combinations_of(sweep)
        runs = [run_of(sweep, number, *values, check=check) for number, values in enumerate(self._planned, start=1)]
        self.example = runs[0].config
        if not self.folder.exists():  # trials that were made by an earlier version go on
            for key, asked in (("settings", tuple(flat(sweep.fixed))), ("vary", tuple(sweep.vary))):
                refuse_idle_in_all((run.config for run in runs), asked, key)
        # More random trials are the same study, and so is all that has the same names.
        names = [run.name for run in (runs[: len(sweep.bases)] if keys.sampler == "random" else runs)]
        # Without defaults: those of a later version may be more.
        usual = to_tree(ScoreSettings())
        score = {name: value for name, value in to_tree(keys.score).items() if value != usual.get(name)}
        self._name = fingerprint([names, sweep.source.get("vary"), keys.sampler, keys.seed, score])
        self._runs: dict[int, SweepRun] = {}  # those whose values are known
        n_trials = len(runs)
        if keys.sampler == "tpe":  # it chooses later: each value has only been tried
            self._planned, n_trials = [], (keys.n_trials or 0) * len(sweep.bases)
        else:
            refuse_same(runs)
            self._runs = {run.number: run for run in runs}
        self.numbers = range(1, n_trials + 1)

    def open(self, write: bool) -> None:
        """Reads the journal. With `write` it makes what is missing: the folder, the study and its trials.

        ValueError where the folder is something else. Without `write` nothing on disk is changed.
        """
        self._refuse_others()
        path = self.folder / JOURNAL
        if write:
            self.folder.mkdir(parents=True, exist_ok=True)
            mend(path)
        self._storage: BaseStorage = InMemoryStorage()
        pruner = pruner_of(self.sweep.keys, self.example)
        if write or path.exists():
            if path.exists():
                with opened(path, MOST_TABLE):  # Optuna opens whatever it is
                    pass
            try:
                journal = JournalStorage(Journal(str(path), lock_of(path)))  # type: ignore[arg-type]
                known = [study.study_name for study in optuna.get_all_study_summaries(journal)]
            except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
                what = f"{path} is damaged ({one_line(error)})"
                raise ValueError(f"{what}: choose another name (the runs beside it are whole)") from error
            if not write and self._name in known:
                self._study = optuna.load_study(study_name=self._name, storage=journal, pruner=pruner)
                return
            self._storage = journal if write else self._storage
        with self.alone() if write else contextlib.nullcontext():
            self._study = optuna.create_study(
                storage=self._storage, study_name=self._name, direction="maximize", load_if_exists=True, pruner=pruner
            )
            for i in range(len(self._study.get_trials(deepcopy=False)), len(self.numbers)):
                # Without values, Optuna's sampler chooses them when the trial begins.
                values = zip(self._kinds, self._planned[i], strict=True) if self._planned else ()
                self._study.enqueue_trial({name: coded(value) for name, value in values})
            if write:
                (self.folder / NOTES).mkdir(exist_ok=True)
                write_new(self.folder / FILE, yaml.safe_dump(self.sweep.whole, sort_keys=False), self.folder / OLD)

    def _refuse_others(self) -> None:
        """ValueError where the sweep's folder is something else, or was made by an earlier version."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file: choose another name or log_dir")
        if (self.folder / JOURNAL).exists() or not self.folder.is_dir():
            return
        if (self.folder / FILE).exists():
            raise ValueError(
                f"{self.folder} was made by an earlier minimax-sweep, which kept no {JOURNAL}: choose another name or "
                "log_dir (its runs are whole: evaluate, plot or resume each by its folder)"
            )
        names = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        if names:
            raise ValueError(f"{self.folder} holds files and no sweep ({names[0]}): choose another name or log_dir")

    def _frozen(self, number: int) -> FrozenTrial:
        """What the journal says of a trial now."""
        trials = self._study.get_trials(deepcopy=False)
        # A larger n_trials is not in the journal before the sweep goes on.
        return trials[number - 1] if number <= len(trials) else optuna.trial.create_trial(state=TrialState.WAITING)

    def _trial(self, number: int) -> optuna.Trial:
        return optuna.Trial(self._study, self._frozen(number)._trial_id)

    def run(self, number: int) -> SweepRun | None:
        """The run of a trial; None where its values have not been chosen, or turned out to be impossible."""
        if number not in self._runs:
            frozen = self._frozen(number)
            if frozen.params.keys() == self._kinds.keys() and not is_impossible(frozen):
                with contextlib.suppress(ValueError):
                    self._runs[number] = self._chosen(number, frozen)
        return self._runs.get(number)

    def _chosen(self, number: int, frozen: FrozenTrial) -> SweepRun:
        values = [value_of(kind, frozen.params[name]) for name, kind in self._kinds.items()]
        return run_of(self.sweep, number, *values, check=self._check)

    def begin(self, number: int) -> SweepRun | None:
        """The run of a trial, which is begun in the journal; None if the values that were chosen are impossible."""
        with self.alone():
            frozen = self._frozen(number)
            if frozen.state.is_finished():
                return self.run(number)
            if frozen.state == TrialState.WAITING:
                self._storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING)
            self._study.sampler = sampler_of(self.sweep.keys, number)
            trial = self._trial(number)
            # Values that are there already stay, also after kill -9 between two of them.
            for name, kind in self._kinds.items():
                suggest(trial, name, kind)
            try:
                if number not in self._runs:
                    self._runs[number] = self._chosen(number, self._frozen(number))
            except ValueError as error:
                self.note_failure(number, str(error).partition(": ")[2])
                self._study.tell(number - 1, state=TrialState.FAIL)
        return self._runs.get(number)

    def failure(self, number: int) -> list[Any] | None:
        """Why the last process of a trial failed, and when; None if it did not."""
        said: list[Any] | None = self._frozen(number).user_attrs.get(FAILURE)
        return said

    def note_failure(self, number: int, line: str | None) -> None:
        """Records why the process of a trial has failed, or with None that it goes on."""
        # Optuna keeps a finished trial as it is. A failed one stays open, so that it can be resumed.
        if not self._frozen(number).state.is_finished() and (line or self.failure(number)):
            self._trial(number).set_user_attr(FAILURE, [line, time.time()] if line else None)

    def status(self, number: int) -> tuple[str, str]:
        """What has become of a trial, and why it failed, if it did."""
        run, failure = self.run(number), self.failure(number)
        if self._frozen(number).state == TrialState.PRUNED:
            return PRUNED, ""
        if run and max(saved_updates(run.folder.checkpoints), default=-1) >= run.config.n_updates:
            return FINISHED, ""
        if failure:
            return FAILED, failure[0]
        # A run has its configuration before its program is compiled.
        begun = run and (run.folder.config.exists() or run.folder.holds_run())
        return (UNFINISHED if begun else WAITING), ""

    def report(self, number: int, scores: Mapping[int, float]) -> bool:
        """Tells Optuna the scores by update, as far as it does not know them; whether the trial should end here."""
        frozen = self._frozen(number)
        new = sorted(scores.keys() - frozen.intermediate_values.keys())
        if frozen.state.is_finished() or not new:
            return False
        trial, ends = self._trial(number), False
        for update in new:
            trial.report(scores[update], update)
            # Optuna compares the latest score alone, and books it for all updates that it has not asked about.
            ends = trial.should_prune() or ends
        return ends

    def end(self, number: int, score: float, pruned: bool = False) -> None:
        """Records that a trial is finished, or has been ended early. A trial without a score tells Optuna nothing."""
        if not self._frozen(number).state.is_finished():
            state = TrialState.PRUNED if pruned else TrialState.FAIL if math.isnan(score) else TrialState.COMPLETE
            self._study.tell(number - 1, score if state == TrialState.COMPLETE else None, state)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A block that no other process of the sweep is in. OSError if one stays in it."""
        try:
            with filelock.FileLock(self.folder / ".lock", timeout=PATIENCE):
                yield
        except filelock.Timeout:
            raise OSError(f"{self.folder} is in use by another minimax-sweep: wait for it") from None


def is_impossible(frozen: FrozenTrial) -> bool:
    """Whether nothing can be trained with the values that were chosen for a trial."""
    return frozen.state == TrialState.FAIL and bool(frozen.user_attrs.get(FAILURE))


def combinations_of(sweep: Sweep) -> list[tuple[Any, ...]]:
    """The label and the values of what is varied, trial by trial. Of TPE, which chooses them later: each value once."""
    keys, labels, kinds = sweep.keys, list(sweep.bases), list(sweep.vary.values())
    n_all = math.prod(n_values(kind) for kind in kinds)
    if keys.sampler != "grid" and not kinds:
        raise ValueError(f"vary is empty: {keys.sampler} needs something to choose")
    n_trials = (keys.n_trials or n_all) * len(labels)
    if n_trials > MOST_TRIALS:
        raise ValueError(f"the {keys.sampler} has {n_trials:,} trials: they must be {MOST_TRIALS:,} at most")
    if keys.sampler == "random":
        # A larger number of trials begins with the same ones.
        return [(label, *values) for values in drawn(sweep, n_all) for label in labels]
    listed = [labels, *(kind if isinstance(kind, list) else [kind.low, kind.high] for kind in kinds)]
    if keys.sampler == "grid":
        return list(itertools.product(*listed))
    first = tuple(values[0] for values in listed)
    others = [(*first[:i], value, *first[i + 1 :]) for i, values in enumerate(listed) for value in values[1:]]
    return [first, *others]


def drawn(sweep: Sweep, n_all: float) -> list[tuple[Any, ...]]:
    """Random values of what is varied, none of them twice."""
    n_trials = sweep.keys.n_trials or 0
    if n_trials > n_all:
        raise ValueError(f"n_trials is {n_trials}: vary has only {n_all} different trials")
    study = optuna.create_study(sampler=RandomSampler(sweep.keys.seed))
    found: dict[str, tuple[Any, ...]] = {}
    most = min(DRAWS * n_trials, MOST_DRAWS)
    for _ in range(most):
        trial = study.ask()
        # By name: it does not matter in which order they stand in the file.
        chosen = {name: suggest(trial, name, kind) for name, kind in sorted(sweep.vary.items())}
        values = tuple(value_of(kind, chosen[name]) for name, kind in sweep.vary.items())
        found.setdefault(repr(values), values)
        if len(found) == n_trials:
            return list(found.values())
    raise ValueError(
        f"n_trials is {n_trials}: {most:,} draws had only {len(found)} different ones (drawn numbers have "
        f"{DIGITS} digits): ask for fewer, or for wider ranges"
    )


def n_values(kind: Choices) -> float:
    """How many values a setting may have."""
    if isinstance(kind, list):
        return len(kind)
    return kind.high - kind.low + 1 if kind.is_whole else math.inf


def coded(value: Any) -> Any:
    """A value as a journal can hold it: a group of settings or a list is its text."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, default=str)


def suggest(trial: optuna.Trial, name: str, kind: Choices) -> Any:
    """The value, as the journal holds it, that Optuna chooses for a setting."""
    if isinstance(kind, list):
        return trial.suggest_categorical(name, [coded(value) for value in kind])
    if kind.is_whole:
        return trial.suggest_int(name, int(kind.low), int(kind.high), log=kind.log)
    return trial.suggest_float(name, kind.low, kind.high, log=kind.log)


def value_of(kind: Choices, chosen: Any) -> Any:
    """The value of a setting that the journal's stands for."""
    return kind[[coded(value) for value in kind].index(chosen)] if isinstance(kind, list) else kind.rounded(chosen)


def sampler_of(keys: SweepKeys, number: int) -> BaseSampler:
    """What chooses the values of a trial."""
    # A seed for each trial: after a restart, one stream for all of them would begin again.
    seed = int(np.random.SeedSequence([keys.seed, number]).generate_state(1)[0])
    # Trials that are under way count as bad ones, so that several at a time look at different places.
    return TPESampler(seed=seed, constant_liar=True) if keys.sampler == "tpe" else RandomSampler(seed)


def pruner_of(keys: SweepKeys, config: Config) -> BasePruner:
    """What ends trials early, by the scores of their evaluations."""
    if keys.pruner == "hyperband":
        return HyperbandPruner(min(config.eval.every, config.n_updates), config.n_updates)
    # One step of warm-up: update 0 is the untrained agent, whose score says nothing about the settings.
    return MedianPruner(n_warmup_steps=1) if keys.pruner == "median" else NopPruner()


class Journal(JournalFileBackend):
    """Optuna's journal file, whose errors name the file."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with naming(self._file_path):
            super().append_logs(logs)


def lock_of(path: Path) -> filelock.BaseFileLock:
    """The lock of the journal: one of the operating system. Optuna's own outlives a killed process for a time."""
    return filelock.FileLock(f"{path}.lock")


def mend(path: Path) -> None:
    """Makes a journal that is missing. Cuts off half a line at its end: a power cut leaves one without a sign."""
    with lock_of(path):
        text = read_bytes(path, MOST_TABLE) if path.exists() else b""
        if not path.exists() or text[-1:] not in (b"", b"\n"):
            write_atomically(path, text[: text.rfind(b"\n") + 1])


def write_new(path: Path, text: str, kept: Path | None = None) -> None:
    """`path` with this text. A file with another text is copied to the folder `kept` first, if one is named."""
    if path.exists():
        if holds(path, text.encode()):
            return
        if kept:
            copy_aside(path, kept)
    write_atomically(path, text)
