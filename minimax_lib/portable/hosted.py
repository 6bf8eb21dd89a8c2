"""A core with its state on the host: draws in blocks, and results that wait until they matter."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from minimax_lib.portable import host_programs as programs
from minimax_lib.portable.encodings import blank, joined, n_rows, rows_of
from minimax_lib.portable.host_state import filled, flat
from minimax_lib.portable.reads import reads_of
from minimax_lib.portable.waiting import Waiting
from minimax_lib.tasks.core import Settles


class Hosted:
    """`core`, its state, and what lies between it and those who draw and report.

    Blocks and waiting results save calls of compiled functions. What is drawn does not depend on them: a block is
    thrown away where a result could change it, and is drawn again from where it was.
    """

    def __init__(self, core: Any, seed: int, draw_ahead: int | None, flush: int, together: bool):
        self.core, self.reads = core, reads_of(core)
        # If no attempt that begins changes the state, no draw depends on those before it.
        self.together = together or not self.reads.starts
        # A block is soon out of date, or each draw in it takes its time.
        self._settles = isinstance(core, Settles)
        costly = self._is_unsettled or self.reads.starts
        self.draw_ahead = (16 if costly else 256) if draw_ahead is None else draw_ahead
        for name, value in (("draw_ahead", self.draw_ahead), ("flush", flush)):
            if value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        self.device = cpu()
        with jax.default_device(self.device):
            k_init, k_draws = jax.random.split(jax.random.key(seed))
        self._key = jax.device_put(k_draws, self.device)
        self._state = programs.begin(core, jax.device_put(k_init, self.device))
        self.waiting = Waiting(self.reads, flush)
        self.n_drawn = self._used = 0  # draws so far, and those of the block
        self._after: Any = None  # the state when the whole block is taken, where it is known
        self._quiet: int | None = None  # results that may wait without changing a draw, where it is known
        self._forget_block()

    @property
    def _is_unsettled(self) -> bool:
        """Any result may change the next draw."""
        return self.reads.results and not self._settles

    def draw(self, n: int) -> Any:
        """The encodings [n, ...] of the next draws."""
        if self.waiting.n > self._n_quiet():
            self._flush()
        parts, left = [blank(self.reads.encoding, 0)], n
        while left:
            if self._used == n_rows(self._block):
                self._draw_block(left)
            taken = min(left, n_rows(self._block) - self._used)
            parts.append(rows_of(self._block, slice(self._used, self._used + taken)))
            self._used, self.n_drawn, left = self._used + taken, self.n_drawn + taken, left - taken
        return joined(parts)

    def tell(self, task: Any, given: dict[str, Any]) -> None:
        """Results [M]: `given` has the fields that the core reads, as arrays [M] or as numbers for all."""
        first, n = 0, n_rows(task)
        while first < n:
            first += self.waiting.add(task, given, first)
            if self.waiting.n == self.waiting.size:
                self._flush()

    def change(self, function: Callable[[Any], Any]) -> None:
        """Puts `function(state)` in the place of the state, after all that waits."""
        self._flush()
        self._state, self._quiet = jax.device_put(function(self._state), self.device), None

    def now(self) -> Any:
        """The core's state after all that was drawn and told. The order of later calls of the core stays the same."""
        state = self._begun()
        return programs.update(self.core, state, self.waiting.arrays()) if self.waiting.n else state

    def arrays(self) -> dict[str, np.ndarray]:
        """All that later draws depend on."""
        counts = {"drawn": np.array(self.n_drawn), "waiting": np.array(self.waiting.n)}
        return flat("core", self._begun()) | flat("waiting", self.waiting.arrays()) | flat("n", counts)

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """What `arrays` has given. ValueError if it does not fit, and then nothing has changed."""
        state = filled("core", self._state, arrays)
        waiting = filled("waiting", self.waiting.arrays(), arrays)
        counts = filled("n", {"drawn": np.array(0), "waiting": np.array(0)}, arrays)
        self._state, self._quiet = jax.device_put(state, self.device), None
        self.waiting.restore(int(counts["waiting"]), waiting)
        self.n_drawn = int(counts["drawn"])
        self._forget_block()

    def _draw_block(self, wanted: int) -> None:
        """Draws as many as will be of use."""
        self._state = self._begun()
        # If results change the draws, those drawn ahead would never be taken.
        n = min(self.draw_ahead, wanted) if self._is_unsettled else self.draw_ahead
        first = np.uint32(self.n_drawn % 2**32)
        given = self.core, self.draw_ahead, self._key, first
        if self.together:
            block, self._after = programs.draw_together(*given, self._state), None
        else:
            block, self._after = programs.draw_in_turn(*given, np.int32(n), self._state)
        self._block, self._used = rows_of(jax.tree.map(np.asarray, block), slice(0, n)), 0

    def _begun(self) -> Any:
        """The state after the attempts have begun on those tasks of the block that were taken."""
        if not self._used or not self.reads.starts:
            return self._state
        if self._used == n_rows(self._block) and self._after is not None:
            return self._after
        room = blank(self.reads.encoding, self.draw_ahead - n_rows(self._block))
        return programs.started(self.core, self._state, joined([self._block, room]), np.int32(self._used))

    def _flush(self) -> None:
        """Hands over what waits. The block is out of date."""
        self._state = self._begun()
        self._forget_block()
        if self.waiting.n:
            self._state = programs.update(self.core, self._state, self.waiting.arrays())
            self.waiting.clear()
            self._quiet = None

    def _n_quiet(self) -> int:
        """As many results may wait, and no draw is another one."""
        if not self._settles:
            return 0
        if self._quiet is None:
            self._quiet = int(programs.quiet(self.core, self._state))
        return self._quiet

    def _forget_block(self) -> None:
        self._block, self._used = blank(self.reads.encoding, 0), 0
        self._after = None


def cpu() -> Any:
    """The device that all is computed on: a trainer with another library needs the memory of the accelerator."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return jax.local_devices()[0]
