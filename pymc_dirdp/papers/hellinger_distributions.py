"""Distances between Dirichlet distributions, sensitivities of these, and P4's exponential mechanism."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive_array
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget

# Hellinger distance of Dirichlet distributions, to full precision even between neighbours of large data sets.


def hellinger_distance(first: ArrayLike, second: ArrayLike) -> Array | float:
    """Hellinger distance of `Dirichlet(first)` and `Dirichlet(second)`, between 0 and 1.

    Parameters
    ----------
    first, second : array_like, shape (..., d)
        Positive concentrations that broadcast against each other; `d = 2` is the Beta distribution.

    Returns
    -------
    distance : float or array, shape (...)
        The relative error is below 1e-12 if the totals are equal.

    References
    ----------
    P4, section 4.2: `H**2 = 1 - B((a + b) / 2) / sqrt(B(a) B(b))`.

    Examples
    --------
    >>> hellinger_distance([7501, 7501], [7502, 7500])
    0.0057732...
    """
    a, b = positive_array(first=first), positive_array(second=second)
    loss = affinity_loss(a, b).sum(axis=-1) - affinity_loss(a.sum(axis=-1), b.sum(axis=-1))
    # If the totals differ, rounding may make the loss negative.
    distance = distance_of(np.maximum(loss, 0.0))
    return distance if distance.ndim else float(distance)


def distance_of(loss: Array) -> Array:
    """The distance with the affinity `1 - distance**2 = exp(-loss)`."""
    distance: Array = np.sqrt(-np.expm1(-loss))
    return distance


def affinity_loss(a: ArrayLike, b: ArrayLike) -> Array:
    """`[log Gamma(a) + log Gamma(b)] / 2 - log Gamma((a + b) / 2)` for positive a and b, which is never negative.

    For large a and b that are close, the terms nearly cancel. So they are expanded by Stirling's formula and cancelled
    analytically (Theory, section 13).
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    mean = (a + b) / 2
    loss: Array = np.maximum(_bulk(a, b, mean) + (_remainder(a) + _remainder(b)) / 2 - _remainder(mean), 0.0)
    return loss


def _bulk(a: Array, b: Array, mean: Array) -> Array:
    """The loss if `log Gamma(z)` were `(z - 1/2) log z`; the linear terms cancel."""
    half = (b - a) / 2
    u = half / mean
    near = np.abs(u) < 0.5
    u = np.where(near, u, 0.0)
    log_product = np.where(near, np.log1p(-u * u), np.log(a / mean) + np.log(b / mean))
    half_log_ratio = np.where(near, np.arctanh(u), np.log(b / a) / 2)
    bulk: Array = (mean - 0.5) * log_product / 2 + half * half_log_ratio
    return bulk


def _remainder(z: Array, *, stirling: float = 12.0) -> Array:
    """`log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2]`.

    From `stirling` on, six terms of Stirling's series are exact to rounding.
    """
    large = np.maximum(z, stirling)
    w = 1 / large**2
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w * (1 / 1188 - w * 691 / 360360))))) / large
    small = np.minimum(z, stirling)
    direct = gammaln(small) - ((small - 0.5) * np.log(small) - small + 0.5 * np.log(2 * np.pi))
    return np.where(z >= stirling, series, direct)


class AffinityRows:
    """The loss between `prior + i` and `prior + j` for integers from 0 to n, one row i at a time.

    Terms of single numbers are cached, and losses with an affinity of 0 to rounding are not computed, so all rows of
    n = 15,000 take seconds.

    Parameters
    ----------
    prior : float
        Positive.
    n : int
        The number of records.
    """

    def __init__(self, prior: float, n: int) -> None:
        self._points = prior + np.arange(2 * n + 1) / 2
        self._remainders = _remainder(self._points)
        self._values = self._points[::2]
        rows = np.arange(n + 1)
        self._first, self._last = self._reach(rows, 0), self._reach(rows, n)

    def row(self, i: int) -> Array:
        """The losses of row i, shape `(n + 1,)`; `inf` if the affinity is 0 to rounding."""
        first, last = self._first[i], self._last[i]
        loss = np.full(len(self._values), np.inf)
        loss[first : last + 1] = self._between(np.asarray(i), np.arange(first, last + 1))
        return loss

    def _between(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Array:
        bulk = _bulk(self._values[i], self._values[j], self._points[i + j])
        remainder = (self._remainders[2 * i] + self._remainders[2 * j]) / 2 - self._remainders[i + j]
        loss: Array = np.maximum(bulk + remainder, 0.0)
        return loss

    def _reach(self, rows: NDArray[np.intp], end: int) -> NDArray[np.intp]:
        """The last index from each row towards `end` with a finite loss, which increases with the distance."""
        near, far = rows, np.full_like(rows, end)
        while np.any(np.abs(far - near) > 1):
            middle = (near + far) // 2
            # In floating point sqrt(1 - exp(-40)) is 1.
            inside = self._between(rows, middle) < 40.0
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        return far


# Hellinger distance between the posteriors of neighbouring data sets.


def local_sensitivities(prior: Array, counts: Integers) -> Array:
    """Largest distance between the posterior and that of a neighbour, for each data set. Shape `(m,)`.

    By the triangle inequality, this is also the maximum change of the distance to any third posterior. So it is P4's
    local sensitivity, which is printed with a comparison of a data set with itself (ERRATA P4.7). All data sets, shape
    `(m, d)`, have the same number of records.
    """
    concentrations = prior + counts
    gains = affinity_loss(concentrations, concentrations + 1)
    # An empty cell cannot give up a record.
    losses = np.where(counts > 0, affinity_loss(np.maximum(concentrations - 1, prior), concentrations), -np.inf)
    largest = np.full(len(counts), -np.inf)
    for receives, gives in itertools.permutations(range(len(prior)), 2):
        np.maximum(largest, gains[:, receives] + losses[:, gives], out=largest)
    return distance_of(largest)


def global_sensitivity(prior: Array, n_records: int) -> float:
    """The maximum of all local sensitivities."""
    if len(prior) == 2:
        return float(local_sensitivities(prior, _two_cells(n_records)).max())
    # Steps are longest for two empty cells; a third cell can have all other records.
    step = affinity_loss(prior, prior + 1)
    return math.sqrt(-math.expm1(-float(np.sort(step)[-2:].sum())))


def smooth_sensitivities(prior: Array, counts: Integers, smoothness: float) -> Array:
    """The least upper bound of the local sensitivity whose inverse changes by at most `smoothness` between neighbours.

    `1 / S(x)` is the minimum of `1 / LS(z) + smoothness * d(x, z)` over all data sets z (P4, Definition 3), computed
    without listing them. All data sets x, shape `(m, d)`, have the same number of records. The smoothness is P4's
    gamma.
    """
    if len(prior) == 2:
        return _smooth_of_two(prior, int(counts[0].sum()), smoothness)[counts[:, 0]]
    numbers = np.arange(counts.max() + 1)
    steps = [affinity_loss(value + numbers, value + numbers + 1) for value in prior.tolist()]
    return np.array([1 / _least_inverse(steps, row, smoothness) for row in counts.tolist()])


def _smooth_of_two(prior: Array, n_records: int, smoothness: float) -> Array:
    """The smooth sensitivity of every data set of two categories, by an upward and a downward sweep."""
    inverse = 1 / local_sensitivities(prior, _two_cells(n_records))
    ramp = smoothness * np.arange(n_records + 1)
    upwards = np.minimum.accumulate(inverse - ramp) + ramp
    downwards = np.minimum.accumulate((inverse + ramp)[::-1])[::-1] - ramp
    smooth: Array = 1 / np.minimum(upwards, downwards)
    return smooth


def _least_inverse(steps: list[Array], counts: list[int], smoothness: float) -> float:
    """The least inverse for a data set of three or more categories.

    The longest step of the minimising data set z takes a record from a cell j to a cell i. Only the counts of these two
    cells matter, and lower counts are worse. The other cells receive their records, so the distance to z is the number
    of records that i and j lose. It is at least 1 if j is empty, because j needs a record to give.
    """
    # The longest step at the data set itself bounds the distance of a better z.
    best = min(
        1 / math.sqrt(-math.expm1(-float(steps[i][counts[i]] + steps[j][counts[j] - 1])))
        for i, j in itertools.permutations(range(len(counts)), 2)
        if counts[j]
    )
    reach = int(best / smoothness) + 1
    for i, j in itertools.permutations(range(len(counts)), 2):
        lost_i = np.arange(min(counts[i], reach) + 1)[:, None]
        left_j = max(counts[j], 1)
        lost_j = np.arange(min(left_j - 1, reach) + 1)
        change = np.maximum(lost_i + lost_j, int(counts[j] == 0))
        length = distance_of(steps[i][counts[i] - lost_i] + steps[j][left_j - lost_j - 1])
        best = min(best, float(np.min(1 / length + smoothness * change)))
    return best


def _two_cells(n_records: int) -> Integers:
    first = np.arange(n_records + 1)
    return np.column_stack([first, n_records - first])


# The posteriors of all data sets of n records, which are the candidates of P4's mechanisms.


def number_of_tables(n_records: int, d: int) -> int:
    """The number of vectors of `d` counts that add up to `n_records`."""
    return math.comb(n_records + d - 1, d - 1)


def all_counts(n_records: int, d: int) -> Integers:
    """All vectors of `d` counts that add up to `n_records`, in lexicographic order. Shape `(number_of_tables, d)`."""
    table = np.zeros((1, 0), dtype=np.int64)
    # Column by column, with the running sum of the entries so far and all possible next entries.
    sums = np.zeros(1, dtype=np.int64)
    for _ in range(d - 1):
        ways = n_records + 1 - sums
        parents = np.repeat(np.arange(len(sums)), ways)
        steps = np.arange(len(parents)) - np.repeat(np.cumsum(ways) - ways, ways)
        sums = sums[parents] + steps
        table = np.column_stack([table[parents], steps])
    return np.column_stack([table, n_records - sums])


@final
class Candidates:
    """Posteriors `Dirichlet(prior + counts)` for all counts with `n_records` in all, in lexicographic order.

    Parameters
    ----------
    prior : array, shape (d,)
        Positive.
    n_records : int
        At least 1.
    """

    def __init__(self, prior: Array, n_records: int) -> None:
        self.prior = prior
        self.n_records = n_records
        self.size = number_of_tables(n_records, len(prior))
        # Limits on the number of vectors and of counts in memory.
        most = min(5_000_000, 20_000_000 // len(prior))
        if self.size > most:
            # Python does not print integers of thousands of digits.
            n_posteriors = str(self.size) if self.size < 10**15 else "more than 1e15"
            raise UnattainableError(
                f"{n_records} records in {len(prior)} categories have {n_posteriors} posteriors. This mechanism "
                f"computes a weight for each, for at most {most}. Use GeometricMechanism or DirichletMechanism."
            )

    @cached_property
    def counts(self) -> Integers:
        """The counts of all candidates, shape `(size, d)`."""
        counts = all_counts(self.n_records, len(self.prior))
        counts.flags.writeable = False
        return counts

    @cached_property
    def _rows(self) -> list[AffinityRows]:
        by_value = {value: AffinityRows(value, self.n_records) for value in set(self.prior.tolist())}
        return [by_value[value] for value in self.prior.tolist()]

    def distances(self, counts: Integers) -> Array:
        """The Hellinger distance of every candidate from the posterior given these counts. Shape `(size,)`."""
        losses = [rows.row(count) for rows, count in zip(self._rows, counts.tolist(), strict=True)]
        if len(losses) == 2:
            loss = losses[0] + losses[1][::-1]
        else:
            loss = losses[0][self.counts[:, 0]]
            for column, row in enumerate(losses[1:], start=1):
                loss += row[self.counts[:, column]]
        return distance_of(loss)

    def layers(self) -> Iterator[range]:
        """Candidates with the same first count. Neighbours are in the same layer or in adjacent layers."""
        first = self.counts[:, 0]
        ends = np.searchsorted(first, np.arange(self.n_records + 2))
        return (range(start, stop) for start, stop in itertools.pairwise(ends.tolist()))

    @property
    def number_of_neighbours(self) -> int:
        """The number of pairs of neighbours: n - 1 records, and one record in one or the other of two cells."""
        return number_of_tables(self.n_records - 1, len(self.prior)) * math.comb(len(self.prior), 2)

    @cached_property
    def neighbours(self) -> list[tuple[Integers, Integers]]:
        """For each layer, the indices of pairs of neighbours in it, or in it and the previous layer, as two arrays."""
        ranks = {tuple(row): i for i, row in enumerate(self.counts.tolist())}
        return [self._pairs(layer, ranks) for layer in self.layers()]

    def _pairs(self, layer: range, ranks: dict[tuple[int, ...], int]) -> tuple[Integers, Integers]:
        first, second = [], []
        for i, row in zip(layer, self.counts[layer.start : layer.stop].tolist(), strict=True):
            # A move from the first cell leads to the previous layer. Moves between other cells are listed once.
            for left in (cell for cell, count in enumerate(row) if count):
                for joined in range(left + 1, len(row)):
                    neighbour = row.copy()
                    neighbour[left] -= 1
                    neighbour[joined] += 1
                    first.append(i)
                    second.append(ranks[tuple(neighbour)])
        return np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)


# The exponential mechanism on posteriors, and its exact losses for all neighbouring data sets.


@final
class HellingerDistributions:
    """The distribution `P[r] ~ exp(-exponent * H(x, r) / S(x))` on all posteriors r, for each data set x.

    Parameters
    ----------
    prior : array, shape (d,)
    n_records : int
    sensitivity : {"smooth", "global", "local"}
        The sensitivity S.
    smoothness : float
        P4's gamma, for the smooth sensitivity.
    """

    def __init__(self, prior: Array, n_records: int, sensitivity: str, smoothness: float) -> None:
        self.candidates = Candidates(prior, n_records)
        self._kind = sensitivity
        self._smoothness = smoothness
        self._worst: dict[float, tuple[float, tuple[int, int, int]]] = {}

    def sensitivities(self, counts: Integers) -> Array:
        """The sensitivities S of data sets of shape `(m, d)`. Shape `(m,)`."""
        prior, n = self.candidates.prior, self.candidates.n_records
        if self._kind == "global":
            return np.full(len(counts), global_sensitivity(prior, n))
        if self._kind == "local":
            return local_sensitivities(prior, counts)
        return smooth_sensitivities(prior, counts, self._smoothness)

    def log_distribution(self, counts: Integers, exponent: float) -> tuple[Array, Array]:
        """The log-probabilities of all candidates, and their distances. Shape `(size,)` each."""
        distances = self.candidates.distances(counts)
        return _normalised(exponent / self.sensitivities(counts[None])[0] * distances), distances

    def neighbours(
        self,
        exponent: float,
        *,
        most_compared: int = 16_000,
        most_numbers: int = 4_000_000_000,
        at_once: int = 20_000_000,
    ) -> Iterator[tuple[Integers, Integers, Array, Array]]:
        """The indices and the log-probabilities of each pair of neighbours, layer by layer.

        Every pair is compared on every candidate. For two categories, `most_compared` candidates mean 2.6e8 numbers,
        which take some seconds; `most_numbers` take a minute. About `at_once` numbers are in memory at a time.

        Raises
        ------
        UnattainableError
            If there are too many posteriors to compare.
        """
        size = self.candidates.size
        if size > most_compared:
            raise UnattainableError(
                f"The exact loss is a comparison of all pairs of {size} posteriors, and the limit is {most_compared}. "
                'Pass accounting="proved", which needs no comparison.'
            )
        if self.candidates.number_of_neighbours * size > most_numbers:
            raise UnattainableError(
                f"The exact loss is a comparison of {self.candidates.number_of_neighbours} pairs of neighbours on "
                f'{size} posteriors, which takes minutes or more. Pass accounting="proved", which needs no comparison.'
            )
        before = np.empty((0, size))
        for layer, (first, second) in zip(self.candidates.layers(), self.candidates.neighbours, strict=True):
            current = np.array([self.log_distribution_at(i, exponent) for i in layer])
            start = layer.start - len(before)
            distributions = np.concatenate([before, current])
            parts = math.ceil(len(first) * size / at_once)
            for ranks, others in zip(
                np.array_split(first, parts or 1), np.array_split(second, parts or 1), strict=True
            ):
                if len(ranks):
                    yield ranks, others, distributions[ranks - start], distributions[others - start]
            before = current

    def log_distribution_at(self, index: int, exponent: float) -> Array:
        """The same log-probabilities for the counts of a candidate, with cached sensitivities."""
        distances = self.candidates.distances(self.candidates.counts[index])
        return _normalised(exponent / self._all[index] * distances)

    @cached_property
    def _all(self) -> Array:
        return self.sensitivities(self.candidates.counts)

    def worst(self, exponent: float) -> tuple[float, tuple[int, int, int]]:
        """The largest privacy loss, and the indices of its neighbours and its candidate. The result is cached."""
        worst = self._worst.get(exponent)
        if worst is None:
            worst = self._compared(exponent)
            self._worst = {exponent: worst}
        return worst

    def _compared(self, exponent: float) -> tuple[float, tuple[int, int, int]]:
        largest, where = 0.0, (0, 0, 0)
        for first, second, p, q in self.neighbours(exponent):
            gaps = np.abs(p - q)
            pair, candidate = divmod(int(gaps.argmax()), gaps.shape[1])
            if gaps[pair, candidate] > largest:
                largest, where = float(gaps[pair, candidate]), (int(first[pair]), int(second[pair]), candidate)
        return largest + 2 * self._error(exponent), where

    def _energy(self, exponent: float) -> float:
        """The largest exponent of a weight, without its sign: no distance is above 1."""
        return exponent / float(self._all.min())

    def _error(self, exponent: float) -> float:
        """A bound of the rounding error of a log-probability: a distance has a relative error below 1e-12."""
        return 4e-12 * self._energy(exponent) + 1e-14

    def largest_exponent(self, epsilon: float, *, start: float) -> float:
        """The largest exponent with a loss of at most epsilon, from below. It is satisfied at `start`.

        All neighbours are compared only a few times. The exponent is solved for the worst neighbours so far. If others
        are worse at the solution, they are added.
        """
        binding: list[tuple[int, int, int]] = [self.worst(start)[1]]
        while True:

            def loss(exponent: float) -> float:
                return max(self._loss(where, exponent) for where in binding)

            exponent = largest_satisfying(lambda x: log_ratio_to_budget(loss(x), epsilon))
            reached, where = self.worst(exponent)
            while reached > epsilon and where in binding:
                # A pair of neighbours is above epsilon at its own root only by rounding.
                exponent *= 1 - 1e-13
                reached, where = self.worst(exponent)
            if reached <= epsilon:
                return exponent
            binding.append(where)

    def _loss(self, where: tuple[int, int, int], exponent: float) -> float:
        x, y, candidate = where
        logs = (self.log_distribution_at(index, exponent)[candidate] for index in (x, y))
        return float(abs(next(logs) - next(logs))) + 2 * self._error(exponent)

    def renyi(self, exponent: float, order: float) -> float:
        """The largest Rényi divergence between neighbours at an order >= 1, from above."""
        if order == math.inf:
            return self.worst(exponent)[0]
        # The derivative of a divergence in an error of the log-probabilities; losses are at most two energies.
        share = 1 + 2 * order * min(1 / (order - 1) if order > 1 else math.inf, 8 * self._energy(exponent))
        return self._largest(exponent, lambda u, v: _divergences(u, v, order)) + share * self._error(exponent)

    def delta(self, exponent: float, epsilon: float) -> float:
        """The largest hockey-stick divergence between neighbours at epsilon >= 0, from above."""

        def divergences(u: Array, v: Array) -> Array:
            above = np.maximum(u - v - epsilon, 0.0)
            return np.asarray(np.sum(-np.exp(u) * np.expm1(-above), axis=1))

        return min(self._largest(exponent, divergences) + 2 * self._error(exponent), 1.0)

    def _largest(self, exponent: float, divergences: Callable[[Array, Array], Array]) -> float:
        """The largest divergence between neighbours, in either order."""
        pairs = ((p, q) for _, _, p, q in self.neighbours(exponent))
        return max(float(divergences(*way).max()) for p, q in pairs for way in ((p, q), (q, p)))


def _divergences(u: Array, v: Array, order: float) -> Array:
    """Rényi divergences, row by row, of distributions with these log-probabilities."""
    gaps = u - v
    if order == 1:
        return np.asarray(np.sum(np.exp(u) * gaps, axis=1))
    tilt = (order - 1) * gaps
    # Sums of exponentials above exp(30) are computed as logarithms.
    if tilt.max() > 30.0:
        return np.asarray(logsumexp(u + tilt, axis=1)) / (order - 1)
    # The sum is near 1, so its difference from 1 is computed.
    return np.log1p(np.sum(np.exp(u) * np.expm1(tilt), axis=1)) / (order - 1)


def _normalised(energies: Array) -> Array:
    """`-energies` minus the logarithm of the sum of their exponentials. The least energy is 0."""
    distribution: Array = -energies - math.log(float(np.exp(-energies).sum()))
    return distribution
