"""Which configuration a checkpoint belongs to, and what else it says in words. Read without orbax, slow to import."""

import json
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from minimax_lib.config import Config, to_dict
from minimax_lib.config.tree import Tree, flat
from minimax_lib.experiment.files import saved_updates
from minimax_lib.experiment.folder import completed, differences
from minimax_lib.messages import shortened

WORDS = "integrity"  # the part of a checkpoint that is not arrays
MOST_BYTES = 1_000_000  # that is read of it: it is some thousand
MOST_SHOWN = 5  # differences in a message

# Settings that do not alter what is learnt: a resumed run may change them.
FREE = frozenset({"name", "log_dir", "resume", "compilation_cache", "plugins"}) | frozenset(
    {"log_every", "checkpoint_every", "keep_checkpoints", "eval.every", "report", "tensorboard"}
)
# Free too, unless what each device has of its own would not fit (`ExperimentRunner`).
LAYOUT = frozenset({"n_devices", "n_seed_devices"})


def free_settings(config: Config) -> frozenset[str]:
    """Dotted names of the settings that a resumed run may change, because they do not alter what it learns.

    The number of updates is one of them unless a learning rate is scheduled over it.
    """
    # By the end of the name: teachers have a schedule of their own.
    scheduled = [value for name, value in flat(to_dict(config)).items() if name.endswith("lr_final")]
    free = FREE | LAYOUT
    return free if any(value is not None for value in scheduled) else free | {"n_updates"}


def sealed(words: Mapping[str, Any]) -> dict[str, Any]:
    """`words`, which are JSON, with a fingerprint of them."""
    return {**words, "words_crc32": _crc(words)}


def words_of(checkpoint: Path) -> dict[str, Any]:
    """What was `sealed` with the checkpoint in the folder `checkpoint`; OSError or ValueError if that is damaged."""
    path = checkpoint / WORDS / "metadata"  # named by orbax
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    with path.open("rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"{path} is too large")
    try:
        words = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path} is nested too deep") from None
    if not isinstance(words, dict):
        raise ValueError(f"{path} is not what was saved")
    # Checkpoints of earlier versions have none.
    crc = words.pop("words_crc32", None)
    if crc is not None and crc != _crc(words):
        raise ValueError(f"{path} is not what was saved")
    return words


def configuration_of(checkpoints: Path, only: int | None = None) -> tuple[int, Tree | None] | None:
    """(update, configuration) of the newest checkpoint, or of `only`, that can be read; None if there is none.

    The configuration is None where the checkpoint is of a version that did not keep it.
    """
    for update in reversed(saved_updates(checkpoints) if only is None else [only]):
        try:
            config = words_of(checkpoints / str(update)).get("config")
        except (OSError, ValueError):
            continue  # damaged: whoever reads the whole checkpoint will say so
        return update, config if isinstance(config, dict) else None
    return None


def edited(own: Tree, config: Tree, free: Collection[str]) -> list[str]:
    """What `config` says differently from the configuration `own` of a checkpoint, but for `free` settings."""
    pairs = differences(completed(own), config).items()
    changes = [shortened(f"{name} was {old} and is now {new}", 150) for name, (old, new) in pairs if name not in free]
    return [*changes[:MOST_SHOWN], f"and {len(changes) - MOST_SHOWN} more"] if len(changes) > MOST_SHOWN else changes


def _crc(words: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(words, sort_keys=True).encode())
