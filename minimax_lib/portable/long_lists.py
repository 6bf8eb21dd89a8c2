"""Curricula over lists of a million tasks, at work in NumPy: a draw looks at a few of them, and not at all."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from minimax_lib.portable import host_programs as programs
from minimax_lib.portable.host_state import Saved, flat
from minimax_lib.portable.running import CompiledCore, RunningCore, lengthened, without
from minimax_lib.portable.sum_tree import SortedScores, SumTree
from minimax_lib.priorities import least_count, rank_powers
from minimax_lib.tasks.frontier import Frontier
from minimax_lib.tasks.listed_plr import ListedPLR, RobustPLR
from minimax_lib.tasks.long_list import LongList
from minimax_lib.tasks.weighted import Weighted


class InNumPy:
    """The common part. What is drawn at once is drawn from one state, and results do not wait.

    Draw number k takes its random numbers from the seed and k.
    """

    def __init__(self, core: LongList, seed: int) -> None:
        self.core, self._seed, self.reads = core, seed, programs.reads_of(core)
        self._active: np.ndarray | None = None  # bool[N], not retired; none: no task is
        self.n_drawn = 0
        self._go_on(self._blank(core.n_tasks))

    def draw(self, n: int) -> np.ndarray:
        uniform = random_numbers(self._seed, self.n_drawn, n)
        tasks = self._draw(uniform)
        if self._active is not None:
            for i in range(1, programs.TRIES):
                wrong = ~self._active[tasks]
                if not wrong.any():
                    break
                tasks[wrong] = self._draw(random_numbers(self._seed, self.n_drawn, n, i)[wrong])
            if (wrong := ~self._active[tasks]).any():  # the core may want retired tasks alone
                sums = np.cumsum(self.weights(), dtype=np.float64)
                places = np.searchsorted(sums, uniform[wrong, 3] * sums[-1], side="right")
                tasks[wrong] = np.minimum(places, np.searchsorted(sums, sums[-1]))
        self.n_drawn += n
        self._started(tasks)
        return tasks.astype(np.int32)

    def evaluated(self, rates: np.ndarray, known: np.ndarray) -> None:
        raise ValueError(f"{type(self.core.inner).__name__} reads no rates of an evaluation")

    def measured(self, numbers: dict[str, Any]) -> None:
        raise ValueError(f"{type(self.core.inner).__name__} reads no metrics")

    def change(self, function: Callable[[Any], Any]) -> None:
        raise ValueError("the state of a LongList is in NumPy: it has no `change`")

    def grow(self, core: LongList) -> None:
        fresh = self._blank(core.n_tasks)
        state = {name: lengthened(array, fresh[name]) for name, array in self._state.items()}
        if self._active is not None:
            self._active = lengthened(self._active, np.ones(core.n_tasks, bool))
        self.core, self.reads = core, programs.reads_of(core)
        self._go_on(state)

    def retire(self, tasks: np.ndarray) -> None:
        self._active = without(self._active, self.core.n_tasks, tasks)

    def trains(self) -> np.ndarray | None:
        return None

    def weights(self) -> np.ndarray:
        found = self._shares()
        if self._active is not None:
            found = np.where(self._active, found, 0.0)
            found = found if found.any() else self._active.astype(float)
        return (found / found.sum()).astype(np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        retired = {} if self._active is None else flat("active", self._active)
        return flat("core", self._state) | flat("n", {"drawn": np.array(self.n_drawn)}) | retired

    def restored(self, saved: Saved, n_tasks: int | None) -> Callable[[], None]:
        n = self.core.n_tasks if n_tasks is None else n_tasks
        state, n_drawn = saved.take("core", self._blank(n)), saved.count("n['drawn']")
        active = saved.take("active", np.ones(n, bool)) if saved.has("active") else None

        def go_on() -> None:
            self._active, self.n_drawn = None if active is None else np.array(active), n_drawn
            self._state = jax.tree.map(np.array, state)
            self.grow(self.core)

        return go_on

    def settings(self) -> dict[str, str]:
        return {}

    def _go_on(self, state: dict[str, np.ndarray]) -> None:
        """Begins from this state."""
        self._state = state

    def _blank(self, n: int) -> dict[str, np.ndarray]:
        """The state of `n` tasks of which nothing is known."""
        raise NotImplementedError

    def _draw(self, uniform: np.ndarray) -> np.ndarray:
        """i64[M], a task for each row of random numbers [M, 4]."""
        raise NotImplementedError

    def _shares(self) -> np.ndarray:
        """f64[N], which need not add up to 1."""
        raise NotImplementedError

    def _started(self, tasks: np.ndarray) -> None:
        """Attempts on these tasks have begun."""


class LongPLR(InNumPy):
    """`ListedPLR` by rank and age."""

    def _blank(self, n: int) -> dict[str, np.ndarray]:
        numbers = {"scores": np.zeros(n, np.float32), "seen": np.zeros(n, bool), "last": np.zeros(n, np.int64)}
        return numbers | {"count": np.zeros((), np.int64)}

    def _go_on(self, state: dict[str, np.ndarray]) -> None:
        super()._go_on(state)
        self._tree = SumTree(self._leaves(np.arange(self.core.n_tasks)))
        seen = np.flatnonzero(state["seen"])
        self._ranking = SortedScores(seen, state["scores"][seen])
        preference = self.core.inner.preference
        self._powers = np.cumsum(rank_powers(self.core.n_tasks, preference.temperature))

    def _leaves(self, tasks: np.ndarray) -> np.ndarray:
        """f64[3, M]: seen, the number of the attempt that began last if seen, not seen."""
        seen = self._state["seen"][tasks]
        return np.stack([seen, seen * self._state["last"][tasks], ~seen]).astype(float)

    def _draw(self, uniform: np.ndarray) -> np.ndarray:
        """The random numbers: whether to replay, whether by age, and the place."""
        plr, n_seen = self.core.inner, len(self._ranking)
        by_chance = np.array([0.0, 0.0, 1.0] if n_seen < plr.n_tasks else [1.0, 0.0, 0.0])
        replays = uniform[:, 0] < self._replay_probability()
        ages = np.array([float(self._state["count"]), -1.0, 0.0])  # count - last, of those that are seen
        total_age = ages @ self._tree.totals
        by_age = replays & (uniform[:, 1] < plr.preference.staleness) & (total_age > 0)
        by_rank = replays & ~by_age
        tasks = np.empty(len(uniform), np.int64)
        ranks = np.searchsorted(self._powers, uniform[by_rank, 2] * self._powers[max(n_seen, 1) - 1], side="right")
        tasks[by_rank] = self._ranking.at(np.minimum(ranks, max(n_seen, 1) - 1))
        for rows, mix in ((by_age, ages), (~replays, by_chance)):
            if rows.any():
                tasks[rows] = self._tree.draw(mix, uniform[rows, 2])
        return tasks

    def _replay_probability(self) -> float:
        plr, n_seen = self.core.inner, len(self._ranking)
        if n_seen < least_count(plr.min_fill, plr.n_tasks):
            return 0.0
        if plr.schedule == "fixed":
            return 1.0 if n_seen == plr.n_tasks else plr.replay_prob
        return min(n_seen / plr.n_tasks, plr.replay_prob)

    def _started(self, tasks: np.ndarray) -> None:
        first = self._state["count"] + 1
        self._state["last"][tasks] = np.arange(first, first + len(tasks))  # of equal tasks, the last one stays
        self._state["count"] += len(tasks)
        own = np.unique(tasks)
        own = own[self._state["seen"][own]]
        self._tree.set(own, self._leaves(own))

    def tell(self, task: np.ndarray, given: dict[str, Any], score: Any) -> None:
        if score is None:
            return
        score = np.broadcast_to(np.asarray(score, np.float32), task.shape)  # a number is that of all
        known = np.isfinite(score)
        scores, seen, alpha = self._state["scores"], self._state["seen"], np.float32(self.core.inner.alpha)
        own = np.unique(task[known])
        before = np.where(seen[own], scores[own], np.nan)
        for rows in in_rounds(task[known]):
            tasks, new = task[known][rows], score[known][rows]
            scores[tasks] = np.where(seen[tasks], (1 - alpha) * scores[tasks] + alpha * new, new)
            seen[tasks] = True
        self._ranking.replace(own, before, scores[own])
        self._tree.set(own, self._leaves(own))

    def trains(self) -> np.ndarray | None:
        return self._state["seen"] if isinstance(self.core.inner, RobustPLR) else None

    def _shares(self) -> np.ndarray:
        n_seen, seen = len(self._ranking), self._state["seen"]
        if not n_seen:
            return np.ones(len(seen))
        by_rank = np.zeros(len(seen))
        by_rank[self._ranking.at(np.arange(n_seen))] = (
            np.diff(self._powers[:n_seen], prepend=0) / self._powers[n_seen - 1]
        )
        ages = np.where(seen, self._state["count"] - self._state["last"], 0).astype(float)
        share = self.core.inner.preference.staleness if ages.any() else 0.0
        return (1 - share) * by_rank + share * ages / max(ages.sum(), 1)

    def metrics(self) -> dict[str, float]:
        shares, state = self._shares(), self._state
        shares /= shares.sum()
        return {
            "tasks/seen": len(self._ranking) / len(shares),
            "tasks/replay_probability": self._replay_probability(),
            "tasks/weighted_score": float(shares @ state["scores"]),
            "tasks/weighted_age": float(shares @ (state["count"] - state["last"])),
        }


class LongFrontier(InNumPy):
    """`Frontier`."""

    def _blank(self, n: int) -> dict[str, np.ndarray]:
        sums = {name: np.zeros(n) for name in ("answers", "total", "squares")}
        flags = {name: np.zeros(n, bool) for name in ("spoilt", "open")}
        return sums | flags | {"right": np.zeros(n, np.int32), "told": np.zeros((), np.int64)}

    def _go_on(self, state: dict[str, np.ndarray]) -> None:
        super()._go_on(state)
        self._tree = SumTree(self._leaves(np.arange(self.core.n_tasks)))

    def _leaves(self, tasks: np.ndarray) -> np.ndarray:
        """f64[4, M]: what differences and what few answers add to the weight; not mastered, mastered."""
        own = {name: self._state[name][tasks] for name in ("answers", "total", "squares", "right")}
        n = own["answers"] + 2
        variance = np.maximum((own["squares"] + 1) / n - ((own["total"] + 1) / n) ** 2, 0)
        left = own["right"] < self.core.inner.mastered
        mixed, few = (4 * variance) ** (1 / self.core.inner.temperature), 1 / np.sqrt(1 + own["answers"])
        return np.stack([left * mixed, left * few, left, ~left]).astype(float)

    def _mix(self) -> np.ndarray:
        """f64[4], what makes a weight of the leaves of a task that is not mastered."""
        mix = np.array([1.0, self.core.inner.bonus * np.sqrt(np.log1p(float(self._state["told"]))), 0.0, 0.0])
        return mix if mix @ self._tree.totals > 0 else np.array([0.0, 0.0, 1.0, 0.0])

    def _again(self) -> float:
        left, mastered = self._tree.totals[2:]
        return 0.0 if not mastered else self.core.inner.again if left else 1.0

    def _draw(self, uniform: np.ndarray) -> np.ndarray:
        again = uniform[:, 0] < self._again()
        tasks = np.empty(len(uniform), np.int64)
        for rows, mix in ((again, np.array([0.0, 0.0, 0.0, 1.0])), (~again, self._mix())):
            if rows.any():
                tasks[rows] = self._tree.draw(mix, uniform[rows, 2])
        return tasks

    def tell(self, task: np.ndarray, given: dict[str, Any], score: Any) -> None:
        if not np.all(given["valid"]):
            return  # scores alone
        state, discount = self._state, self.core.inner.discount
        progress = np.broadcast_to(given["progress"], task.shape).astype(float)
        episode = np.broadcast_to(given["episode"], task.shape) > 0
        for rows in in_rounds(task):
            tasks, new, ends = task[rows], progress[rows], episode[rows]
            kept = np.where(state["open"][tasks], 1.0, discount)
            for name, more in (("answers", 1.0), ("total", new), ("squares", new**2)):
                state[name][tasks] = kept * state[name][tasks] + more
            spoilt = (state["open"][tasks] & state["spoilt"][tasks]) | (new < 1)
            state["right"][tasks] = np.where(
                ends, np.where(spoilt, 0, state["right"][tasks] + 1), state["right"][tasks]
            )
            state["spoilt"][tasks], state["open"][tasks] = spoilt, ~ends
        state["told"] += len(task)
        own = np.unique(task)
        self._tree.set(own, self._leaves(own))

    def _shares(self) -> np.ndarray:
        leaves, mix, again = self._leaves(np.arange(self.core.n_tasks)), self._mix(), self._again()
        n_mastered = max(leaves[3].sum(), 1)
        return (1 - again) * (mix @ leaves) / max(mix @ self._tree.totals, 1e-300) + again * leaves[3] / n_mastered

    def metrics(self) -> dict[str, float]:
        tried = self._state["answers"] > 0
        rate = self._state["total"][tried] / self._state["answers"][tried]
        n = max(len(rate), 1)
        return {
            "tasks/tried": float(tried.mean()),
            "tasks/rate": float(rate.sum() / n),
            "tasks/mixed": float(((rate > 0) & (rate < 1)).sum() / n),
            "tasks/mastered": float((self._state["right"] >= self.core.inner.mastered).mean()),
        }


class LongWeights(CompiledCore):
    """A core that draws from its weights. They are added up once, and again when they have changed."""

    def __init__(self, core: LongList, seed: int, flush: int) -> None:
        super().__init__(core.inner, seed, None, flush, False)
        self._seed, self._sums, self._of = seed, np.zeros(0), None

    def draw(self, n: int) -> np.ndarray:
        if self._n_waiting > self._n_quiet():
            self._flush()
        if self._of is not self._state:
            shares = self.weights()
            assert shares is not None
            self._sums, self._of = np.cumsum(shares, dtype=np.float64), self._state
            self._last = int(np.flatnonzero(shares)[-1])
        uniform = random_numbers(self._seed, self.n_drawn, n)[:, 0]
        self.n_drawn += n
        # With "right", a task of weight 0 has no place: its sum is that of the task before it.
        tasks = np.searchsorted(self._sums, uniform * self._sums[-1], side="right")
        return np.minimum(tasks, self._last).astype(np.int32)

    def grow(self, core: Any) -> None:
        super().grow(core.inner if isinstance(core, LongList) else core)

    def retire(self, tasks: np.ndarray) -> None:
        super().retire(tasks)
        self._of = None


def at_work(core: LongList, seed: int, draw_ahead: int | None, flush: int) -> RunningCore:
    """The core at work. ValueError in one line for one that cannot be."""
    inner = core.inner
    if draw_ahead is not None:
        raise ValueError(f"draw_ahead is {draw_ahead}: a LongList draws no task ahead, leave it out")
    if isinstance(inner, Frontier):
        return LongFrontier(core, seed)
    if isinstance(inner, ListedPLR):
        p = inner.preference
        if (p.transform, p.staleness_transform, p.staleness_temperature) != ("rank", "power", 1.0):
            raise ValueError(
                f"LongList has PLR with transform rank, staleness_transform power and staleness_temperature 1: it is "
                f"{p.transform}, {p.staleness_transform} and {p.staleness_temperature}"
            )
        return LongPLR(core, seed)
    if isinstance(inner, Weighted) and not programs.reads_of(inner).starts:
        return LongWeights(core, seed, flush)
    raise ValueError(
        f"inner is {type(inner).__name__}: LongList needs Frontier, ListedPLR, RobustPLR, or a curriculum that draws "
        "from its weights alone, and does not ask which tasks have begun (SFL, LearningProgress)"
    )


def random_numbers(seed: int, first: int, n: int, stream: int = 0) -> np.ndarray:
    """f64[n, 4] in [0, 1), of the draws from number `first` on. They depend on the seed and their number alone."""
    bits = np.random.Philox(key=[seed % 2**64, stream], counter=first)
    return np.random.Generator(bits).random((n, 4))


def in_rounds(tasks: np.ndarray) -> list[np.ndarray]:
    """Rows of `tasks` (i32[M]) in rounds, in each of which a task stands at most once, in the order of the rows."""
    order = np.argsort(tasks, kind="stable")
    ordered = tasks[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    place = np.arange(len(tasks)) - np.repeat(begins, np.diff(begins, append=len(tasks)))
    return [order[place == i] for i in range(int(place.max(initial=-1)) + 1)]
