"""Ranges of numbers, from which a sweep takes values."""

import dataclasses
import math

MOST = 10_000  # values
DIGITS = 4  # significant ones of a number that is drawn or spaced: names of folders and tables stay readable

Number = int | float


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole numbers if both ends are."""

    low: Number
    high: Number
    log: bool = False
    """Evenly spread logarithms."""
    n: int | None = None
    """Of a grid: how many."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"low is {self.low} and high is {self.high}: both must be finite")
        if self.low >= self.high:
            raise ValueError(f"low is {self.low}: it must be less than high, which is {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low}: with log it must be positive")
        if self.n is not None and not 2 <= self.n <= MOST:
            raise ValueError(f"n is {self.n}: it must be between 2 and {MOST:,}")

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def size(self) -> float:
        """How many values there are."""
        return self.high - self.low + 1 if self.is_whole else math.inf

    def spaced(self) -> list[Number]:
        """`n` values, evenly spaced, from low to high."""
        assert self.n is not None
        inner = [self._rounded(self._between(self.high, i / (self.n - 1))) for i in range(1, self.n - 1)]
        return [self.low, *inner, self.high]

    def drawn(self, share: float) -> Number:
        """The value that a uniform number in [0, 1) stands for."""
        if not self.is_whole:
            return self._rounded(self._between(self.high, share))
        # The last whole number must be as likely as the others: up to the one after it, rounded down.
        return min(math.floor(self._between(self.high + 1, share)), int(self.high))

    def _between(self, high: Number, share: float) -> float:
        """What lies at `share` of the way from low to `high`."""
        return self.low * (high / self.low) ** share if self.log else self.low + (high - self.low) * share

    def _rounded(self, value: float) -> Number:
        # Within the ends, which may have more digits than are kept.
        return round(value) if self.is_whole else min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)
