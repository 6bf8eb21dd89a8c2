"""A core at work behind a `Host`: its state, the draws made ahead, and the results that wait."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from minimax_lib.portable import host_programs as programs
from minimax_lib.portable.encodings import blank, copied, joined, n_rows, rows_of, write
from minimax_lib.portable.host_programs import Reads
from minimax_lib.portable.host_state import Saved, flat
from minimax_lib.portable.numbers import checked_count
from minimax_lib.tasks.core import able, leaves_out
from minimax_lib.tasks.manual import Manual


class RunningCore(Protocol):
    """What a `Host` needs of a core at work. What it is told has been checked."""

    reads: Reads
    n_drawn: int

    def draw(self, n: int) -> Any:
        """The encodings [n, ...] of the next tasks."""
        ...

    def tell(self, task: Any, given: dict[str, Any], score: Any) -> None:
        """Attempts [M] have ended: fields of `Results`, one number for all or [M]. `score`: f32[M], or none."""
        ...

    def evaluated(self, rates: np.ndarray, known: np.ndarray) -> None:
        """Rates f32[N] of an evaluation, 0 where not `known` (bool[N])."""
        ...

    def measured(self, numbers: dict[str, Any]) -> None:
        """Numbers of the trainer, by name."""
        ...

    def change(self, function: Callable[[Any], Any]) -> None:
        """Puts `function(state)` in the place of the state."""
        ...

    def grow(self, core: Any) -> None:
        """Goes on as `core`, the same for a longer list. What is known of the old tasks stays."""
        ...

    def retire(self, tasks: np.ndarray) -> None:
        """These tasks are not drawn any more."""
        ...

    def trains(self) -> np.ndarray | None:
        """bool[N], the tasks to learn from; none where that is all of them."""
        ...

    def weights(self) -> np.ndarray | None:
        """f32[N], the shares of the tasks as they are now."""
        ...

    def metrics(self) -> dict[str, float]: ...

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a later draw depends on."""
        ...

    def restored(self, saved: Saved, n_tasks: int | None) -> Callable[[], None]:
        """Checks a saved state, of a list of `n_tasks` tasks, and changes nothing: the function goes on from it."""
        ...

    def settings(self) -> dict[str, str]:
        """Of those that a later draw depends on."""
        ...


class CompiledCore:
    """A core in JAX, compiled for the CPU. It draws `draw_ahead` tasks at once, and keeps up to `flush` results."""

    def __init__(self, core: Any, seed: int, draw_ahead: int | None, flush: int, together: bool):
        self.core, self.reads = core, programs.reads_of(core)
        if together and isinstance(core, Manual):
            raise ValueError("together is True: a queue (Manual) gives one task after another")
        # If no attempt that begins changes the state, no draw depends on those before it.
        self._together = together or not self.reads.starts
        # A block of draws is soon out of date, or each draw in it takes its time.
        self._unsettled = self.reads.results and not able(core, "quiet")
        self._draw_ahead = (16 if self._unsettled or self.reads.starts else 256) if draw_ahead is None else draw_ahead
        self._draw_ahead, flush = checked_count("draw_ahead", self._draw_ahead), checked_count("flush", flush)
        with jax.default_device(programs.cpu()):
            k_init, k_draws = jax.random.split(jax.random.key(seed))
        self._k_init, self._key = jax.device_put((k_init, k_draws), programs.cpu())
        self._state = programs.begin(core, self._k_init)
        self._active: np.ndarray | None = None  # bool[N], not retired; none: no task is
        self._quiet: int | None = None  # results that may wait without changing a draw, where it is known
        self._waiting, self._n_waiting = programs.blank_waiting(self.reads, flush), 0
        self.n_drawn = self._n_used = 0
        self._forget_block()

    def draw(self, n: int) -> Any:
        if isinstance(self.core, Manual):  # in the compiled loop, an empty queue repeats its last task
            programs.check_queue(n, int(self._now().count))
        if self._n_waiting > self._n_quiet():
            self._flush()
        parts = [blank(self.reads.encoding, 0)]
        while n:
            if self._n_used == n_rows(self._block):
                self._draw_block(n)
            taken = min(n, n_rows(self._block) - self._n_used)
            parts.append(rows_of(self._block, slice(self._n_used, self._n_used + taken)))
            self._n_used, self.n_drawn, n = self._n_used + taken, self.n_drawn + taken, n - taken
        return joined(parts)

    def tell(self, task: Any, given: dict[str, Any], score: Any) -> None:
        """Results without a score are left out where they change nothing."""
        if not (self.reads.results if score is None else self.reads.fields):
            return
        given = given | {"score": np.nan if score is None else score, "task": task}
        first, n, size = 0, n_rows(task), n_rows(self._waiting["task"])
        while first < n:
            taken = min(n - first, size - self._n_waiting)
            ours, theirs = slice(self._n_waiting, self._n_waiting + taken), slice(first, first + taken)
            for name, waiting in self._waiting.items():
                value = given[name]  # a number is that of all
                write(waiting, ours, rows_of(value, theirs) if isinstance(value, tuple) or np.ndim(value) else value)
            self._n_waiting, first = self._n_waiting + taken, first + taken
            if self._n_waiting == size:
                self._flush()

    def evaluated(self, rates: np.ndarray, known: np.ndarray) -> None:
        self.change(lambda state: programs.evaluated(self.core, state, rates, known))

    def measured(self, numbers: dict[str, Any]) -> None:
        self.change(lambda state: programs.measured(self.core, state, numbers))

    def change(self, function: Callable[[Any], Any]) -> None:
        self._flush()
        self._state, self._quiet = jax.device_put(function(self._state), programs.cpu()), None

    def grow(self, core: Any) -> None:
        self._flush()
        fresh = programs.begin(core, self._k_init)
        self._state = jax.device_put(jax.tree.map(lengthened, self._state, fresh), programs.cpu())
        if self._active is not None:
            self._active = lengthened(self._active, np.ones(core.n_tasks, bool))
        self.core, self.reads, self._quiet = core, programs.reads_of(core), None
        self._forget_block()

    def retire(self, tasks: np.ndarray) -> None:
        self._flush()
        self._active = without(self._active, self.core.n_tasks, tasks)

    def trains(self) -> np.ndarray | None:
        if self.core.n_tasks is None or not leaves_out(self.core):
            return None
        return np.asarray(programs.trains(self.core, self._now()))

    def weights(self) -> np.ndarray | None:
        found = programs.weights(self.core, self._now())
        if found is None or self._active is None:
            return None if found is None else np.asarray(found)
        shares = np.asarray(found) * self._active
        shares = shares if shares.any() else self._active.astype(np.float32)
        return shares / shares.sum()

    def metrics(self) -> dict[str, float]:
        return {name: float(x) for name, x in programs.report(self.core, self._now()).items()}

    def arrays(self) -> dict[str, np.ndarray]:
        counts = {"drawn": np.array(self.n_drawn), "waiting": np.array(self._n_waiting)}
        retired = {} if self._active is None else flat("active", self._active)
        state = self._begun()
        if self._together and self.reads.starts and 0 < self._n_used < n_rows(self._block):
            # The rest of the block is drawn from the state at its start: whoever goes on from here draws it again.
            state, counts["used"] = self._state, np.array(self._n_used)
        return flat("core", state) | flat("waiting", self._waiting) | flat("n", counts) | retired

    def restored(self, saved: Saved, n_tasks: int | None) -> Callable[[], None]:
        shorter = self.core if n_tasks is None else programs.resized(self.core, n_tasks)
        like = programs.begin(shorter, self._k_init)
        state, waiting = saved.take("core", like), saved.take("waiting", self._waiting)
        n_waiting = saved.count("n['waiting']", n_rows(self._waiting["task"]))
        n_drawn = saved.count("n['drawn']")
        n_used = saved.count("n['used']", min(n_drawn, self._draw_ahead)) if saved.has("n['used']") else 0
        active = saved.take("active", np.ones(shorter.n_tasks, bool)) if saved.has("active") else None

        def go_on() -> None:
            core = self.core
            self.core, self._active = shorter, None if active is None else np.array(active)
            self._state, self._quiet = jax.device_put(state, programs.cpu()), None
            self._waiting, self._n_waiting = jax.tree.map(np.array, waiting), n_waiting
            self.n_drawn = n_drawn - n_used
            self._forget_block()
            if n_used:
                self._draw_block(self._draw_ahead)
            self.n_drawn, self._n_used = n_drawn, n_used
            if n_tasks is not None:
                self.grow(core)

        return go_on

    def settings(self) -> dict[str, str]:
        is_shared = self._together and self.reads.starts
        together = f"True, {self._draw_ahead} at once" if is_shared else "False"
        return {"flush": repr(n_rows(self._waiting["task"])), "together": together}

    def _now(self) -> Any:
        """The core's state after all that was drawn and told. The order of later calls of the core stays the same."""
        return self._updated(self._begun())

    def _updated(self, state: Any) -> Any:
        """`state` after all that waits. A compiled function may read its arguments later, so it gets copies."""
        given = {name: copied(values) for name, values in self._waiting.items()}
        return programs.update(self.core, state, given) if self._n_waiting else state

    def _flush(self) -> None:
        """Hands over what waits. The block of draws is out of date: those not taken are drawn again."""
        self._state = self._begun()
        self._forget_block()
        if self._n_waiting:
            self._state, self._quiet = self._updated(self._state), None
            self._waiting, self._n_waiting = programs.blank_waiting(self.reads, n_rows(self._waiting["task"])), 0

    def _n_quiet(self) -> int:
        """The number of results that may wait without a change to any draw."""
        if not able(self.core, "quiet"):
            return 0
        if self._quiet is None:
            self._quiet = int(programs.quiet(self.core, self._state))
        return self._quiet

    def _forget_block(self) -> None:
        self._block = blank(self.reads.encoding, 0)  # tasks drawn ahead
        self._n_used = 0  # of them, that are taken
        self._after: Any = None  # the state when the whole block is taken, where it is known

    def _draw_block(self, wanted: int) -> None:
        """Draws as many tasks as will be of use."""
        self._state = self._begun()
        # If results change the draws, those drawn ahead would never be taken.
        n = min(self._draw_ahead, wanted) if self._unsettled else self._draw_ahead
        given = self.core, self._draw_ahead, self._key, np.uint32(self.n_drawn % 2**32)
        if self._together:
            block, self._after = programs.draw_together(*given, self._state, self._active), None
        else:
            block, self._after = programs.draw_in_turn(*given, np.int32(n), self._state, self._active)
        self._block, self._n_used = rows_of(jax.tree.map(np.asarray, block), slice(0, n)), 0

    def _begun(self) -> Any:
        """The state after the attempts have begun on those tasks of the block that were taken."""
        if not self._n_used or not self.reads.starts:
            return self._state
        if self._n_used == n_rows(self._block) and self._after is not None:
            return self._after
        room = blank(self.reads.encoding, self._draw_ahead - n_rows(self._block))
        return programs.started(self.core, self._state, joined([self._block, room]), np.int32(self._n_used))


def lengthened(old: Any, fresh: Any) -> np.ndarray:
    """`fresh`, the array of a longer list, with `old` at its beginning. ValueError if it is not longer."""
    old, longer = np.asarray(old), np.array(fresh)
    if old.dtype != longer.dtype or old.ndim != longer.ndim or any(np.greater(old.shape, longer.shape)):
        raise ValueError(f"{old.dtype}{list(old.shape)} does not fit into {longer.dtype}{list(longer.shape)}")
    longer[tuple(slice(0, n) for n in old.shape)] = old
    return longer


def without(active: np.ndarray | None, n: int, tasks: np.ndarray) -> np.ndarray:
    """bool[n], `active` (None: all) without `tasks`. ValueError if none would be left."""
    left = np.ones(n, bool) if active is None else active.copy()
    left[tasks] = False
    if not left.any():
        raise ValueError(f"all {n} tasks would be retired: at least one must stay")
    return left
