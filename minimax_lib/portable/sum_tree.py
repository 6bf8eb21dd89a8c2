"""Lists of millions of entries, of which a few change at a time: draws by weight, and by rank. In NumPy."""

import numpy as np

FAN = 32
NO_KEY = np.uint64(2**64 - 1)
MOST_CHANGES = 8192  # of a ranking, before the sorted list is made anew


class SumTree:
    """K weights of each of N entries, f64[K, N], none negative, and all sums that a draw needs.

    A node has `FAN` parts, so that a million entries are four levels deep. A change or a draw of M entries looks at
    M FAN numbers of each level, which stand side by side in memory.
    """

    def __init__(self, weights: np.ndarray) -> None:
        k, n = weights.shape
        self._levels: list[np.ndarray] = []  # f64[nodes, K, FAN], the entries last
        while not self._levels or n > 1:
            nodes = -(-n // FAN)
            padded = np.zeros((k, nodes * FAN))
            padded[:, :n] = weights
            self._levels.insert(0, padded.reshape(k, nodes, FAN).swapaxes(0, 1).copy())
            weights, n = self._levels[0].sum(axis=2).T, nodes

    @property
    def totals(self) -> np.ndarray:
        """f64[K]"""
        return self._levels[0][0].sum(axis=1)

    def set(self, entries: np.ndarray, weights: np.ndarray) -> None:
        """New weights f64[K, M] of `entries` i64[M], each of which stands there once."""
        values = weights.T
        for level in reversed(self._levels):
            level[entries // FAN, :, entries % FAN] = values
            # Sums are made anew from their parts. Differences added to them would leave rounding errors behind.
            entries = np.unique(entries // FAN)
            values = level[entries].sum(axis=2)

    def draw(self, mix: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """i64[M], an entry for each of `uniform` f64[M] in [0, 1), with weights `mix` f64[K] @ weights.

        The sums of the mixture must not be negative, and its total must be above 0.
        """
        node, share = np.zeros(len(uniform), np.int64), uniform
        rows = np.arange(len(uniform))
        for level in self._levels:
            sums = np.cumsum(mix @ level[node], axis=1)
            # Among the parts of a node, the place is a share of the sum as it is there: it stays inside.
            place = share * sums[:, -1]
            # The first part whose sum is above the place has a weight. Rounding may have led to the end of all parts.
            part = np.minimum((sums <= place[:, None]).sum(axis=1), (sums < sums[:, -1:]).sum(axis=1))
            before = np.where(part > 0, sums[rows, part - 1], 0.0)
            share = np.clip((place - before) / (sums[rows, part] - before), 0, 1)
            node = node * FAN + part
        return node


class SortedScores:
    """Entries in the order of their scores, the highest first; of equal ones, the lower number first.

    A sorted list, and beside it the few changes since it was made. So a change need not sort millions of scores.
    """

    def __init__(self, entries: np.ndarray, scores: np.ndarray) -> None:
        self._keys = np.sort(keys_of(entries, scores))
        self._added: np.ndarray  # sorted keys that the list does not have yet
        self._places: np.ndarray  # of each, where it belongs in the list
        self._removed: np.ndarray  # sorted places of keys that are not valid any more
        self._forget_changes()

    def __len__(self) -> int:
        return len(self._keys) - len(self._removed) + len(self._added)

    def replace(self, entries: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        """New scores `after` of `entries`, each of which stands there once; `before` is NaN where there was none."""
        known = ~np.isnan(before)
        old, new = np.sort(keys_of(entries[known], before[known])), np.sort(keys_of(entries, after))
        place = np.searchsorted(self._added, old)
        is_added = np.append(self._added, NO_KEY)[place] == old
        self._added, self._places = (np.delete(x, place[is_added]) for x in (self._added, self._places))
        removed = np.searchsorted(self._keys, old[~is_added])
        self._removed = np.insert(self._removed, np.searchsorted(self._removed, removed), removed)
        place = np.searchsorted(self._added, new)
        places = np.searchsorted(self._keys, new)
        self._added, self._places = np.insert(self._added, place, new), np.insert(self._places, place, places)
        if len(self._added) + len(self._removed) > MOST_CHANGES:
            keys = np.delete(self._keys, self._removed)
            self._keys = np.insert(keys, np.searchsorted(keys, self._added), self._added)
            self._forget_changes()
        else:
            self._count()

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """i64[M], the entries of these ranks; the first has rank 0."""
        before = np.searchsorted(self._ranks_of_added, ranks)  # how many of the added stand before
        keys = np.empty(len(ranks), np.uint64)
        is_added = np.zeros(len(ranks), bool)
        inside = before < len(self._added)
        is_added[inside] = self._ranks_of_added[before[inside]] == ranks[inside]
        keys[is_added] = self._added[before[is_added]]
        live = (ranks - before)[~is_added]
        keys[~is_added] = self._keys[live + np.searchsorted(self._live_before_removed, live, side="right")]
        return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)

    def _forget_changes(self) -> None:
        self._added, self._places, self._removed = (np.zeros(0, kind) for kind in (np.uint64, np.int64, np.int64))
        self._count()

    def _count(self) -> None:
        live = self._places - np.searchsorted(self._removed, self._places)
        self._ranks_of_added = live + np.arange(len(live))
        self._live_before_removed = self._removed - np.arange(len(self._removed))


def keys_of(entries: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """u64[M], in the order of falling scores (f32), and of rising numbers where they are equal."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0 becomes 0
    # The bits of a float rise with its size. Those of negative ones are turned round, and lie below the others.
    rising = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31))
    return (~rising).astype(np.uint64) << np.uint64(32) | entries.astype(np.uint64)
