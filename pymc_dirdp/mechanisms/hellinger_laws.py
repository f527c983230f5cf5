"""The exponential mechanism on posteriors, and its exact losses between all neighbouring data sets."""

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import final

import numpy as np
from scipy.special import logsumexp

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.hellinger_candidates import Candidates
from pymc_dirdp.mechanisms.hellinger_sensitivity import global_sensitivity, local_sensitivities, smooth_sensitivities
from pymc_dirdp.numerics.roots import largest_safe, log_excess

__all__ = ["HellingerLaws"]

# Every pair of neighbours is compared on every candidate. The first number is 2.6e8 numbers for two categories, some
# seconds; the second is a minute. So many numbers are held at once.
_MOST_COMPARED, _MOST_NUMBERS, _AT_ONCE = 16_000, 4_000_000_000, 20_000_000
# A pair of neighbours that binds again after its own root was taken binds by rounding.
_ROUNDING = 1e-13
# Exponentials above exp(30) are better summed as logarithms.
_STEEP = 30.0


@final
class HellingerLaws:
    """For each data set x the distribution `P[r] ~ exp(-exponent * H(x, r) / S(x))` on all posteriors r.

    Parameters
    ----------
    prior : array, shape (d,)
    n_records : int
    sensitivity : {"smooth", "global", "local"}
        What S is.
    smoothness : float
        P4's gamma, for the smooth sensitivity.
    """

    def __init__(self, prior: Array, n_records: int, sensitivity: str, smoothness: float) -> None:
        self.candidates = Candidates(prior, n_records)
        self._kind = sensitivity
        self._smoothness = smoothness
        self._worst: dict[float, tuple[float, tuple[int, int, int]]] = {}

    def sensitivities(self, counts: Integers) -> Array:
        """S of data sets of shape `(m, d)`. Shape `(m,)`."""
        prior, n = self.candidates.prior, self.candidates.n_records
        if self._kind == "global":
            return np.full(len(counts), global_sensitivity(prior, n))
        if self._kind == "local":
            return local_sensitivities(prior, counts)
        return smooth_sensitivities(prior, counts, self._smoothness)

    def log_law(self, counts: Integers, exponent: float) -> tuple[Array, Array]:
        """Logarithms of the probabilities of all candidates, and their distances. Shape `(size,)` each."""
        distances = self.candidates.distances(counts)
        return _normalised(exponent / self.sensitivities(counts[None])[0] * distances), distances

    def neighbours(self, exponent: float) -> Iterator[tuple[Integers, Integers, Array, Array]]:
        """Each pair of neighbours once, a layer at a time: their indices and their logarithmic distributions.

        Raises
        ------
        UnattainableError
            If there are too many posteriors to hold each data set against each of them.
        """
        size = self.candidates.size
        if size > _MOST_COMPARED:
            raise UnattainableError(
                f"The exact loss is found by comparing all pairs of {size} posteriors; at most {_MOST_COMPARED} are "
                'allowed. Use accounting="proved", which needs no comparison.'
            )
        if self.candidates.number_of_neighbours * size > _MOST_NUMBERS:
            raise UnattainableError(
                f"The exact loss is found by comparing {self.candidates.number_of_neighbours} pairs of neighbours on "
                f'{size} posteriors, which takes minutes or more. Use accounting="proved", which needs no comparison.'
            )
        before = np.empty((0, size))
        for layer, (first, second) in zip(self.candidates.layers(), self.candidates.neighbours, strict=True):
            now = np.array([self.log_law_at(i, exponent) for i in layer])
            start = layer.start - len(before)
            both = np.concatenate([before, now])
            parts = math.ceil(len(first) * size / _AT_ONCE)
            for some, others in zip(np.array_split(first, parts or 1), np.array_split(second, parts or 1), strict=True):
                if len(some):
                    yield some, others, both[some - start], both[others - start]
            before = now

    def log_law_at(self, index: int, exponent: float) -> Array:
        """The same logarithms for the counts of a candidate; fast for many of them."""
        distances = self.candidates.distances(self.candidates.counts[index])
        return _normalised(exponent / self._all[index] * distances)

    @cached_property
    def _all(self) -> Array:
        return self.sensitivities(self.candidates.counts)

    def worst(self, exponent: float) -> tuple[float, tuple[int, int, int]]:
        """The largest privacy loss, and where: two neighbours and a candidate, by index. It is kept."""
        found = self._worst.get(exponent)
        if found is None:
            found = self._compared(exponent)
            self._worst = {exponent: found}
        return found

    def _compared(self, exponent: float) -> tuple[float, tuple[int, int, int]]:
        largest, where = 0.0, (0, 0, 0)
        for first, second, p, q in self.neighbours(exponent):
            gaps = np.abs(p - q)
            pair, candidate = divmod(int(gaps.argmax()), gaps.shape[1])
            if gaps[pair, candidate] > largest:
                largest, where = float(gaps[pair, candidate]), (int(first[pair]), int(second[pair]), candidate)
        return largest, where

    def largest_exponent(self, epsilon: float, *, start: float) -> float:
        """The largest exponent whose worst loss is at most epsilon, from below; `start` is one that is safe.

        All neighbours are compared a few times only: the exponent is solved for those that have been worst so far, and
        if then others are worse, they join them.
        """
        binding: list[tuple[int, int, int]] = [self.worst(start)[1]]
        while True:

            def loss(exponent: float) -> float:
                return max(self._loss(where, exponent) for where in binding)

            exponent = largest_safe(lambda x: log_excess(loss(x), epsilon))
            reached, where = self.worst(exponent)
            while reached > epsilon and where in binding:
                exponent *= 1 - _ROUNDING
                reached, where = self.worst(exponent)
            if reached <= epsilon:
                return exponent
            binding.append(where)

    def _loss(self, where: tuple[int, int, int], exponent: float) -> float:
        x, y, candidate = where
        return float(abs(self.log_law_at(x, exponent)[candidate] - self.log_law_at(y, exponent)[candidate]))

    def renyi(self, exponent: float, order: float) -> float:
        """The largest Rényi divergence of neighbours at an order >= 1."""
        if order == math.inf:
            return self.worst(exponent)[0]
        return self._largest(exponent, lambda u, v: _divergences(u, v, order))

    def delta(self, exponent: float, epsilon: float) -> float:
        """The largest hockey-stick divergence of neighbours at epsilon >= 0."""

        def divergences(u: Array, v: Array) -> Array:
            above = np.maximum(u - v - epsilon, 0.0)
            return np.asarray(np.sum(-np.exp(u) * np.expm1(-above), axis=1))

        return self._largest(exponent, divergences)

    def _largest(self, exponent: float, divergences: Callable[[Array, Array], Array]) -> float:
        """The largest divergence of neighbours, in either order."""
        pairs = ((p, q) for _, _, p, q in self.neighbours(exponent))
        largest = (float(divergences(*laws).max()) for p, q in pairs for laws in ((p, q), (q, p)))
        return max(0.0, max(largest, default=0.0))


def _divergences(u: Array, v: Array, order: float) -> Array:
    """Rényi divergences, row by row, of distributions given by their logarithms."""
    gaps = u - v
    if order == 1:
        return np.asarray(np.sum(np.exp(u) * gaps, axis=1))
    tilt = (order - 1) * gaps
    if tilt.max() > _STEEP:
        return np.asarray(logsumexp(u + tilt, axis=1)) / (order - 1)
    # The sum is near 1, so its difference from 1 is summed.
    return np.log1p(np.sum(np.exp(u) * np.expm1(tilt), axis=1)) / (order - 1)


def _normalised(energies: Array) -> Array:
    """`-energies`, less the logarithm of the sum of their exponentials. The least energy is 0."""
    law: Array = -energies - math.log(float(np.exp(-energies).sum()))
    return law
