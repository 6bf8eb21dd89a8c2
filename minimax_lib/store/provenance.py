"""The part of a checkpoint that is not arrays, above all its configuration. Read without orbax: that imports slowly."""

import dataclasses
import json
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from minimax_lib.agents.ppo import SCHEDULES
from minimax_lib.config import Config, to_dict
from minimax_lib.config.tree import Tree, flat
from minimax_lib.config.wandb import Wandb
from minimax_lib.files import read_json
from minimax_lib.messages import shortened
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import NO_REASONS, change, completed, differences

WORDS = "integrity"  # the part of a checkpoint that is not arrays
MOST_BYTES = 1_000_000  # larger files are refused; a real one has some thousand
MOST_SHOWN = 5  # differences in a message

# Settings that do not alter what is learnt. A resumed run may change them.
FREE = frozenset({"name", "log_dir", "resume", "compilation_cache", "plugins"}) | frozenset(
    {"log_every", "checkpoint_every", "keep_checkpoints", "eval.every", "report", "tensorboard", "archive_every"}
    | {"pictures_every"}
    | {f"wandb.{field.name}" for field in dataclasses.fields(Wandb)}
)
# These are free too, unless levels that belong to one device would not fit (`ExperimentRunner`).
LAYOUT = frozenset({"n_devices", "n_seed_devices"})


def free_settings(config: Config) -> frozenset[str]:
    """Dotted names of the settings that a resumed run may change, because they do not alter what it learns.

    The number of updates is one of them, unless a setting is scheduled over it.
    """
    free = FREE | LAYOUT
    return free if schedules(config) else free | {"n_updates"}


def reasons_fixed(config: Config) -> dict[str, str]:
    """Dotted names of settings that a resumed run may not change -> why, and what to do, where that is not plain."""
    why = [f"{name} is {value}" for name, value in schedules(config).items()]
    if not why:
        return {}
    return {
        "n_updates": f" ({' and '.join(why)}, which is reached after all of n_updates, so that a run of another length "
        "differs from its first update on; keep n_updates, or train the longer run under another --name)"
    }


def schedules(config: Config) -> dict[str, float]:
    """Dotted names and values of the settings that are reached at the end of the run."""
    # Found by the end of the name: teachers have their own schedules.
    settings = flat(to_dict(config)).items()
    return {name: value for name, value in settings if name.split(".")[-1] in SCHEDULES and value is not None}


def sealed(words: Mapping[str, Any]) -> dict[str, Any]:
    """`words`, which must be JSON, with their fingerprint."""
    return {**words, "words_crc32": _crc(words)}


def words_of(checkpoint: Path) -> dict[str, Any]:
    """What was `sealed` with the checkpoint in the folder `checkpoint`. ValueError if it is damaged."""
    path = checkpoint / WORDS / "metadata"  # named by orbax
    words = read_json(path, MOST_BYTES)
    if not isinstance(words, dict):
        raise ValueError(f"{path} is not what was saved")
    # Checkpoints of earlier versions have no fingerprint.
    crc = words.pop("words_crc32", None)
    if crc is not None and crc != _crc(words):
        raise ValueError(f"{path} is not what was saved")
    return words


def configuration_of(checkpoints: Path, only: int | None = None) -> tuple[int, Tree | None] | None:
    """(update, configuration) of the newest readable checkpoint, or of the checkpoint `only`; None if there is none.

    The configuration is None if the checkpoint is from a version that did not keep it.
    """
    for update in reversed(saved_updates(checkpoints) if only is None else [only]):
        try:
            config = words_of(checkpoints / str(update)).get("config")
        except ValueError:
            continue  # damaged, as reading the whole checkpoint will report
        return update, config if isinstance(config, dict) else None
    return None


def edited(own: Tree, config: Tree, free: Collection[str], reasons: Mapping[str, str] = NO_REASONS) -> list[str]:
    """How `config` differs from the configuration `own` of a checkpoint, apart from the settings `free`."""
    pairs = {name: pair for name, pair in differences(completed(own), config).items() if name not in free}
    changes = [shortened(change(name, *pair), 150) + reasons.get(name, "") for name, pair in pairs.items()]
    return [*changes[:MOST_SHOWN], f"and {len(changes) - MOST_SHOWN} more"] if len(changes) > MOST_SHOWN else changes


def _crc(words: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(words, sort_keys=True).encode())
