"""Learned costs of steps and calls."""

from __future__ import annotations

import math

import numpy as np

FORGETTING = 0.995  # weight of a result relative to the next one
REFIT_EVERY = 16
EWMA_WEIGHT = 0.1
LENGTH_WEIGHT = 0.1
LENGTH_HALF_LIFE = 30.0  # seconds without an end in which what is known of lengths loses half of its weight
LEAST_LENGTHS = 3.0  # requests whose lengths must be known
DEVIATIONS = 4.0  # of a prediction
HANG_FACTOR = 20  # times the expected cost, after which a worker hangs


class Average:
    """Exponentially weighted mean of durations, in seconds."""

    def __init__(self, first_guess: float) -> None:
        self.value = first_guess
        self._seen = False

    def add(self, seconds: float) -> None:
        self.value = seconds if not self._seen else self.value + EWMA_WEIGHT * (seconds - self.value)
        self._seen = True


class Lengths:
    """Mean and spread of the lengths of finished requests, in frames; recent ones weigh more."""

    def __init__(self) -> None:
        self.mean = 0.0
        self._variance = 0.0
        self._weight = 0.0  # number of requests that the figures stand for

    def add(self, frames: int) -> None:
        self._weight = min(self._weight + 1.0, 1 / LENGTH_WEIGHT)
        step = 1 / self._weight
        deviation = frames - self.mean
        self.mean += step * deviation
        self._variance = (1 - step) * (self._variance + step * deviation * deviation)

    def forget(self, seconds: float) -> None:
        """Time passes in which nothing was learned; after long, requests of another kind may come."""
        self._weight *= 0.5 ** (seconds / LENGTH_HALF_LIFE)

    @property
    def known(self) -> bool:
        """Return whether enough requests have ended, not too long ago."""
        return self._weight >= LEAST_LENGTHS

    def at_least(self, requests: float) -> float:
        """Frames that this many requests will have together, at least: all but certain, 0 if little is known."""
        if not self.known:
            return 0.0
        spread = math.sqrt(self._variance) * (math.sqrt(requests) + requests / math.sqrt(self._weight))
        return max(0.0, requests * self.mean - DEVIATIONS * spread)


class LinearCost:
    """Linear cost model: seconds as a base plus a price per unit of each kind, fitted by least squares.

    Recent results weigh more. ``guess`` holds until enough results have come, and in directions in which nothing
    varies. Prices are never negative.
    """

    def __init__(self, guess: list[float]) -> None:
        self._guess = np.array(guess)
        self._prices = guess
        # A prior worth about one result of typical size in each direction keeps the fit defined.
        self._prior = np.diag(np.full(len(guess), 1e-2))
        self._gram = [[0.0] * len(guess) for _ in guess]  # few numbers: plain floats are faster than arrays
        self._moment = [0.0] * len(guess)
        self._seen = 0

    def add(self, seconds: float, *units: float) -> None:
        """Learn from a result that took ``seconds`` for this many units of each kind."""
        row = (1.0, *units)
        for i, (sums, unit) in enumerate(zip(self._gram, row, strict=True)):
            sums[:] = [FORGETTING * total + unit * other for total, other in zip(sums, row, strict=True)]
            self._moment[i] = FORGETTING * self._moment[i] + unit * seconds
        self._seen += 1
        if self._seen < REFIT_EVERY or self._seen % REFIT_EVERY == 0:
            self._refit()

    def predict(self, *units: float) -> float:
        """Predict the seconds for this many units of each kind."""
        prices = self._prices
        return prices[0] + sum(price * unit for price, unit in zip(prices[1:], units, strict=True))

    def _refit(self) -> None:
        moment = np.array(self._moment) + self._prior @ self._guess
        self._prices = np.maximum(np.linalg.solve(np.array(self._gram) + self._prior, moment), 0.0).tolist()
