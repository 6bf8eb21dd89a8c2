"""Curves for TensorBoard."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minimax_lib.experiment.writers.base import Row

FLUSH_SECONDS = 1


class TensorBoardWriter:
    """The same rows as curves for TensorBoard, a folder a seed; text in a row goes before the names of its numbers.

    Needs tensorboardX, which writes in the background and is at most `FLUSH_SECONDS` behind. The first update that is
    written takes the place of what an earlier process wrote from there on.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._seeds: dict[int, Any] = {}

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            curves = self._curves(row["seed"], row["update"])
            label = [value for value in row.values() if isinstance(value, str)]
            numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
            for name in numbers.keys() - {"update", "seed"}:
                curves.add_scalar("/".join([*label, name]), float(numbers[name]), row["update"])

    def close(self) -> None:
        """Waits until everything is written."""
        for curves in self._seeds.values():
            curves.close()

    def _curves(self, seed: int, update: int) -> Any:
        # TensorBoard takes a folder for a run, and draws curves of one name from several runs in one picture.
        if seed not in self._seeds:
            from tensorboardX import SummaryWriter  # an extra, which only --tensorboard needs

            folder = str(self._folder / f"seed_{seed}")
            self._seeds[seed] = SummaryWriter(folder, purge_step=update, flush_secs=FLUSH_SECONDS)
        return self._seeds[seed]
