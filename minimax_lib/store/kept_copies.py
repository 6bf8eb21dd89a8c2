"""The frozen copies of the student that a run with opponents keeps in its bank."""

from typing import Any

import jax
import numpy as np

from minimax_lib.config import to_dict
from minimax_lib.opponents.bank import EMPTY, Bank
from minimax_lib.runners.build import mesh_of
from minimax_lib.store.saved import Run


def bank_in(run: Run, curriculum: Any) -> Bank:
    """The bank of all seeds, as it stands in the state of the run's curriculum; ValueError where there is none."""
    if run.archive is not None:
        raise ValueError(f"{run.parameters_alone}: the bank of opponents is in checkpoints")
    leaves = jax.tree.leaves(curriculum, is_leaf=lambda part: isinstance(part, Bank))
    banks = [part for part in leaves if isinstance(part, Bank)]
    if not banks:
        name = to_dict(run.config)["runner"]["name"]
        raise ValueError(f"{run.name} keeps no copies of its student, its runner is {name!r}")
    return banks[0]


def bank_of_seed(run: Run, curriculum: Any, place: int) -> Bank:
    """The bank [K, ...] of the seed in this place, as NumPy arrays; ValueError where there is none."""
    shared = mesh_of(run.config).n_rows > 1
    where = (place, 0) if shared else (place,)  # every device of a seed has the same bank
    bank: Bank = jax.tree.map(lambda x: np.asarray(x)[where], bank_in(run, curriculum))
    return bank


def slots_of(bank: Bank) -> dict[int, int]:
    """The slot of each copy by the copy's number, the oldest first."""
    found = {int(serial): slot for slot, serial in enumerate(bank.record.serial) if serial != EMPTY}
    return dict(sorted(found.items()))


def copy_in(bank: Bank, slot: int, student: Any) -> Any:
    """The parameters in a slot, in the types of the student's own: the bank may keep them in fewer bits."""
    return jax.tree.map(lambda kept, now: kept[slot].astype(now.dtype), bank.params, student)
