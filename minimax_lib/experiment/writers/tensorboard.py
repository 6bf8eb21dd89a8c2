"""Curves for TensorBoard."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.experiment.writers.base import Row, curves_of

FLUSH_SECONDS = 1


class TensorBoardWriter:
    """Writes the rows of the tables as curves for TensorBoard, in a folder for each seed.

    `curves_of` names them. Curves that an earlier process wrote are replaced from the first update that is written
    here. Needs tensorboardX, which writes in the background and is at most `FLUSH_SECONDS` behind.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._seeds: dict[int, Any] = {}

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            curves = self._curves(row["seed"], row["update"])
            for name, value in curves_of(row).items():
                curves.add_scalar(name, value, row["update"])

    def write_pictures(self, update: int, seed: int, pictures: Mapping[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            self._curves(seed, update).add_image(f"pictures/{name}", picture, update, dataformats="HWC")

    def close(self) -> None:
        """Returns when everything is written."""
        for curves in self._seeds.values():
            curves.close()

    def _curves(self, seed: int, update: int) -> Any:
        # TensorBoard takes each folder for a run. It draws curves of one name from several runs in one picture.
        if seed not in self._seeds:
            from tensorboardX import SummaryWriter  # an extra, which only --tensorboard needs

            folder = str(self._folder / f"seed_{seed}")
            self._seeds[seed] = SummaryWriter(folder, purge_step=update, flush_secs=FLUSH_SECONDS)
        return self._seeds[seed]
