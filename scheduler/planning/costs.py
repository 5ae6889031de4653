"""What a step or a call costs, learned from those that were answered."""

from __future__ import annotations

import numpy as np

FORGETTING = 0.995  # weight of an answer against the one after it
REFIT_EVERY = 16


class LinearCost:
    """Seconds as a base plus a price per unit of each kind, by least squares over recent answers.

    Until much has been seen, and in directions where nothing varies, ``guess`` holds. Prices are never negative.
    """

    def __init__(self, guess: list[float]) -> None:
        self._guess = np.array(guess)
        self._prices = guess
        # A prior worth about one answer of typical size in each direction keeps the fit defined.
        prior = np.diag(np.array([1e-2] + [1e-2] * (len(guess) - 1)))
        self._prior = prior
        self._gram = [[0.0] * len(guess) for _ in guess]  # few numbers: plain ones are quicker than arrays
        self._moment = [0.0] * len(guess)
        self._seen = 0

    def add(self, seconds: float, *units: float) -> None:
        """An answer took so long for so many units of each kind."""
        row = (1.0, *units)
        for i, (sums, unit) in enumerate(zip(self._gram, row, strict=True)):
            sums[:] = [FORGETTING * total + unit * other for total, other in zip(sums, row, strict=True)]
            self._moment[i] = FORGETTING * self._moment[i] + unit * seconds
        self._seen += 1
        if self._seen < REFIT_EVERY or self._seen % REFIT_EVERY == 0:
            self._refit()

    def predict(self, *units: float) -> float:
        """Seconds for so many units of each kind."""
        prices = self._prices
        return prices[0] + sum(price * unit for price, unit in zip(prices[1:], units, strict=True))

    def _refit(self) -> None:
        moment = np.array(self._moment) + self._prior @ self._guess
        self._prices = np.maximum(np.linalg.solve(np.array(self._gram) + self._prior, moment), 0.0).tolist()
