"""Curves for TensorBoard."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.experiment.writers.base import Row, curves_of
from minimax_lib.files import naming
from minimax_lib.messages import one_line

FLUSH_SECONDS = 1


class TensorBoardWriter:
    """Writes the rows of the tables as curves for TensorBoard, in a folder for each seed.

    `curves_of` names them. Curves that an earlier process wrote are replaced from the first update that is written
    here. A number that is not finite is left out: TensorBoard draws none, and warns of each. Needs tensorboardX, which
    writes in the background and is at most `FLUSH_SECONDS` behind. If it cannot write, one line says so, and the run
    goes on without it.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = print):
        self._folder, self._say = folder, say
        self._seeds: dict[int, Any] = {}
        self._guards: list[GuardedWriter] = []
        self._lost = False

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._attempt(lambda row=row: self._add(row))  # type: ignore[misc]

    def write_pictures(self, update: int, seed: int, pictures: Mapping[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            self._attempt(
                lambda name=name, picture=picture: self._curves(seed, update).add_image(  # type: ignore[misc]
                    f"pictures/{name}", picture, update, dataformats="HWC"
                )
            )

    def close(self) -> None:
        """Returns when everything is written."""
        for curves in self._seeds.values():
            self._attempt(curves.close)

    def _add(self, row: Row) -> None:
        curves = self._curves(row["seed"], row["update"])
        for name, value in curves_of(row).items():
            if math.isfinite(value):
                curves.add_scalar(name, value, row["update"])

    def _attempt(self, work: Callable[[], Any]) -> None:
        """Does the work, unless some has failed before: the first failure is said, and is the last."""
        if self._lost:
            return
        try:
            with naming(self._folder):
                work()
                errors = [guard.error for guard in self._guards if guard.error]
                if errors:
                    raise errors[0]
        except OSError as error:
            self._lost = True
            self._say(f"curves for TensorBoard cannot be written any more: {one_line(error)}")

    def _curves(self, seed: int, update: int) -> Any:
        # TensorBoard takes each folder for a run. It draws curves of one name from several runs in one picture.
        if seed not in self._seeds:
            from tensorboardX import SummaryWriter  # an extra, which only --tensorboard needs

            folder = self._folder / f"seed_{seed}"
            curves = SummaryWriter(str(folder), purge_step=update, flush_secs=FLUSH_SECONDS)
            thread = curves.file_writer.event_writer._worker
            thread._record_writer = GuardedWriter(thread._record_writer)
            self._guards.append(thread._record_writer)
            self._seeds[seed] = curves
        return self._seeds[seed]


class GuardedWriter:
    """What tensorboardX's thread writes to: an error is kept, and not raised there.

    The thread would end with a traceback, and whoever gives it more would wait for it for ever.
    """

    def __init__(self, writer: Any):
        self._writer = writer
        self.error: OSError | None = None

    def write_event(self, event: Any) -> None:
        self._keep(lambda: self._writer.write_event(event))

    def flush(self) -> None:
        self._keep(self._writer.flush)

    def _keep(self, work: Callable[[], Any]) -> None:
        try:
            if self.error is None:
                work()
        except OSError as error:
            self.error = error
