"""Hockey-stick divergences between neighbouring intensities above a floor, for many pairs at once.

A cell with the shape `a` holds G from `TG(a; floor)`. A record that joins it changes the distribution to `TG(a + r;
floor)`, which is `TG(a)` tilted by `exp(r log G - k)`, with `k = log Z(a + r) - log Z(a)`. Everything here is an
integral of positive terms over the logarithms of intensities, so no divergence is lost to cancellation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.numerics.bisection import last_inside
from pymc_dirdp.numerics.truncated_gamma import log_mass_change_and_peak

__all__ = ["Cells", "joining", "leaving", "moving"]

# Integrals end where their integrand has fallen by so many nats.
_DROP = 50.0
# The logarithm of an intensity exceeds this number with a probability below exp(-1e200). Where it would have to,
# a smaller epsilon is used, at which the divergence is larger.
_FARTHEST = 500.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_UNIT, _UNIT_WEIGHTS = (1 + _NODES) / 2, _WEIGHTS / 2
# Panels are short where the integrand is largest. A panel at the end of the range has a share of 0.12 of it.
_PANELS = 10
_GRADED = (np.arange(1, _PANELS + 1) / _PANELS) ** 1.5
_TAIL_PANELS = 5
# Breaks around the place where a law has its tail, in its rough standard deviations.
_BULK = np.array([0.0, 1.0, 2.0, 3.2, 5.0, 8.0, 13.0, 25.0, 50.0])
_BULK = np.concatenate([-_BULK[:0:-1], _BULK])


def _integrals_from_nodes() -> Array:
    """The matrix that takes values at the nodes of `[0, 1]` to the integrals from each node to 1."""
    powers = np.polynomial.legendre.legvander(_NODES, len(_NODES) - 1)
    integrals = np.empty_like(powers)
    for i in range(len(_NODES)):
        antiderivative = np.polynomial.legendre.legint(np.eye(len(_NODES))[i])
        ends = np.polynomial.legendre.legval(np.append(_NODES, 1.0), antiderivative)
        integrals[:, i] = (ends[-1] - ends[:-1]) / 2
    return np.asarray(np.linalg.solve(powers.T, integrals.T).T)


_TO_THE_END = _integrals_from_nodes()


@dataclass(frozen=True, eq=False)
class Cells:
    """The intensity of a cell without a record that may join it, or with one that leaves: arrays of one shape.

    Attributes
    ----------
    a, floor : array, shape (n,)
        Shapes without the record, and floors; positive.
    r : float
        What the record adds to the shape.
    change : array, shape (n,)
        `log Z(a + r) - log Z(a)`.
    log_peak : array, shape (n,)
        The logarithm of the largest density of `log G`.
    """

    a: Array
    floor: Array
    r: float
    change: Array
    log_peak: Array

    @classmethod
    def of(cls, a: Array, floor: Array, r: float) -> "Cells":
        """Cells with these shapes and floors."""
        return cls(a, floor, r, *log_mass_change_and_peak(a, r, floor))

    @property
    def mode(self) -> Array:
        """The intensity with the largest density of its logarithm."""
        return np.asarray(np.maximum(self.a, self.floor))

    def __getitem__(self, index: Any) -> "Cells":
        return Cells(self.a[index], self.floor[index], self.r, self.change[index], self.log_peak[index])

    def fall(self, v: Array, shift: float = 0.0) -> Array:
        """By how many nats the density of `log G`, with `shift` added to the shape, is below its peak at `v`."""
        a = self.a + shift
        mode = np.maximum(a, self.floor)
        return np.asarray(_intensity(v) - mode - a * (v - np.log(mode)))


def moving(losing: Cells, gaining: Cells, epsilon: float | Array) -> Array:
    """Divergence of `TG(a + r) x TG(b)` from `TG(a) x TG(b + r)`, where `a` gains a record and `b` loses one.

    Let x and y be the logarithms of the two intensities. The loss is above `epsilon` where `x - y > s`, and the
    divergence is the expectation of `J(y + s)` under `TG(b)`, with

        J(x) = integral of (exp(r z - k) - exp(r x - k)) p_a(z) over z > x
             = integral of r exp(r z - k) P[log G_a > z] over z > x.

    Both integrals are taken from the top on one grid.

    Parameters
    ----------
    losing, gaining : Cells
        The cells with `b` and with `a`, arrays of shape (n,). Floors may differ.
    epsilon : float or array, shape (n,)
        At least 0.
    """
    r = gaining.r
    s = np.minimum((epsilon + gaining.change - losing.change) / r, _FARTHEST)
    breaks = _breaks(losing, gaining, s)
    panels = _Panels.between(breaks)
    x, of = panels.nodes, panels.of_rows
    # A panel lies on one side of the floor, below which the formula may overflow, and the density is 0.
    above = x.mean(axis=-1) > np.log(gaining.floor)[panels.rows]
    density = np.zeros_like(x)
    rows, at = panels.rows[above], x[above]
    density[above] = np.exp(gaining.log_peak[rows, None] - gaining[rows].fall(at.T).T)
    tail = panels.from_the_top(density)
    # The tilt is measured from the threshold at the highest density of `b`, where a large epsilon makes it large.
    # Beyond a tilt of exp(500) neither law has anything left.
    scale = np.minimum(r * (s + np.log(losing.mode)), gaining.change + _FARTHEST)
    inner = panels.from_the_top(r * np.exp(np.minimum(r * x - of(scale), _FARTHEST)) * tail)
    log_outer = of(losing.log_peak + scale - gaining.change) - losing[panels.rows].fall((x - of(s)).T).T
    return panels.integrals(np.exp(log_outer) * inner)


@dataclass(frozen=True, eq=False)
class _Panels:
    """The panels of several integrals that are not empty, of which there are half as many.

    Attributes
    ----------
    rows, columns : array of int, shape (panels,)
        The integral that each panel belongs to, and which of its panels it is.
    width : array, shape (panels,)
    nodes : array, shape (panels, nodes)
    shape : tuple of int
        The number of integrals, and of the panels of each with the empty ones.
    """

    rows: Integers
    columns: Integers
    width: Array
    nodes: Array
    shape: tuple[int, ...]

    @classmethod
    def between(cls, breaks: Array) -> "_Panels":
        """The panels between breaks in rising order, shape (n, panels + 1)."""
        widths = np.diff(breaks, axis=-1)
        rows, columns = np.nonzero(widths > 0)
        width = widths[rows, columns]
        return cls(rows, columns, width, breaks[rows, columns, None] + width[:, None] * _UNIT, widths.shape)

    def of_rows(self, values: Array) -> Array:
        """What belongs to an integral, beside each of its panels."""
        return np.asarray(values[self.rows, None])

    def _in_rows(self, values: Array) -> Array:
        """The integral over each panel, where it belongs."""
        found = np.zeros(self.shape)
        found[self.rows, self.columns] = np.add.reduce(values * _UNIT_WEIGHTS, axis=1) * self.width
        return found

    def integrals(self, values: Array) -> Array:
        """The integral of each row."""
        return np.asarray(self._in_rows(values).sum(axis=-1))

    def from_the_top(self, values: Array) -> Array:
        """The integral from each node to the last break."""
        panels = self._in_rows(values)
        after = np.zeros(self.shape)
        after[:, :-1] = np.cumsum(panels[:, :0:-1], axis=-1)[:, ::-1]
        inside = np.einsum("ij,kj->ik", values, _TO_THE_END) * self.width[:, None]
        return np.asarray(after[self.rows, self.columns, None] + inside)


def joining(cells: Cells, epsilon: float | Array) -> Array:
    """Divergence of `TG(a + r)` from `TG(a)`: a record appears."""
    epsilons = np.minimum(epsilon, cells.r * _FARTHEST - cells.change)[:, None]
    x = np.maximum((epsilons[:, 0] + cells.change) / cells.r, np.log(cells.floor))
    top = _top(cells, x)
    z, weights = _panels(np.clip(np.log(np.maximum(cells.a + cells.r, cells.floor)), x, top), x, top)
    density = np.exp(epsilons + cells.log_peak[:, None] - _fall_of_all(cells, z))
    # Where all losses are above epsilon, the lower end is the floor and not the point where the loss is epsilon.
    excess = np.expm1(cells.r * z - cells.change[:, None] - epsilons)
    return np.asarray((density * excess * weights).sum(axis=-1))


def leaving(cells: Cells, epsilon: float | Array) -> Array:
    """Divergence of `TG(a)` from `TG(a + r)`: a record disappears."""
    lowest, highest = np.log(cells.floor), _top(cells, np.log(cells.mode), shift=0.0)
    y = np.minimum((cells.change - epsilon) / cells.r, highest)
    possible = y > lowest
    y = np.where(possible, y, highest)
    centre = np.minimum(np.log(cells.mode), y)
    drop = cells.fall(centre) + _DROP
    bottom = last_inside(lambda v: cells.fall(v) < drop, centre, lowest)[1]
    z, weights = _panels(centre, bottom, y)
    density = np.exp(cells.log_peak[:, None] - _fall_of_all(cells, z))
    deficit = -np.expm1(np.minimum(cells.r * z - (cells.change - epsilon)[:, None], 0.0))
    return np.asarray(np.where(possible, (density * deficit * weights).sum(axis=-1), 0.0))


def _intensity(v: Array) -> Array:
    return np.asarray(np.exp(np.minimum(v, _FARTHEST)))


def _fall_of_all(cells: Cells, z: Array) -> Array:
    mode = cells.mode[:, None]
    return np.asarray(_intensity(z) - mode - cells.a[:, None] * (z - np.log(mode)))


def _panels(centre: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Nodes and weights on both sides of a centre, each of shape (n, nodes)."""
    below, above = (centre - low)[:, None] * _GRADED[::-1], (high - centre)[:, None] * _GRADED
    breaks = np.concatenate([centre[:, None] - below, centre[:, None], centre[:, None] + above], axis=-1)
    width = np.diff(breaks, axis=-1)
    nodes = breaks[:, :-1, None] + width[..., None] * _UNIT
    return nodes.reshape(len(centre), -1), (width[..., None] * _UNIT_WEIGHTS).reshape(len(centre), -1)


def _breaks(losing: Cells, gaining: Cells, s: Array) -> Array:
    """Panels for the integral of :func:`moving`: dense around its largest value, with a tail for the inner integral.

    The integrand is at most about `exp(-f(x))`, where f is the fall of the density of `b` at `x - s`, and that of
    `a + r` at x where x is above its mode. f is convex, and its least value has a closed form.
    """
    r = gaining.r
    top_mode = np.maximum(gaining.a + r, gaining.floor)
    lowest = np.log(losing.floor) + s

    def fall(x: Array) -> Array:
        above = np.where(x > np.log(top_mode), gaining.fall(x, r), 0.0)
        return np.asarray(losing.fall(x - s) + above)

    alone = s + np.log(losing.mode)
    both = np.log((gaining.a + losing.a + r) / (1 + np.exp(-s)))
    centre = np.where(alone <= np.log(top_mode), alone, np.clip(both, np.maximum(np.log(top_mode), lowest), alone))
    least = fall(centre)
    low = last_inside(lambda x: fall(x) - least < _DROP, centre, lowest)[1]
    far = np.maximum(centre, alone + np.log(2 * (1 + (_DROP + least) / losing.mode)))
    high = last_inside(lambda x: fall(x) - least < _DROP, centre, far)[1]
    top = np.maximum(_top(gaining, high), high)
    below, above = (centre - low)[:, None] * _GRADED[::-1], (high - centre)[:, None] * _GRADED
    tail = (top - high)[:, None] * (np.arange(1, _TAIL_PANELS + 1) / _TAIL_PANELS)
    middle, kink = centre[:, None], np.clip(np.log(gaining.floor), low, top)[:, None]
    parts = [middle - below, middle, middle + above, high[:, None] + tail, kink]
    # The inner integral has its own place and width, and a large step moves it by more than that.
    steps = (0.0, r) if np.any(r > 0.5 * np.sqrt(gaining.mode)) else (r,)
    for shape in ((gaining.a + step)[:, None] for step in steps):
        mode = np.maximum(shape, gaining.floor[:, None])
        # Above a floor beyond the shape the law falls like an exponential one.
        spread = 1 / np.maximum(np.sqrt(mode), mode - shape)
        parts.append(np.clip(np.log(mode) + spread * _BULK, low[:, None], top[:, None]))
    return np.sort(np.concatenate(parts, axis=-1), axis=-1)


def _top(cells: Cells, x: Array, shift: float | None = None) -> Array:
    """A point above x beyond which the density of the cell with its record has nothing left against that at x."""
    more = cells.r if shift is None else shift
    mode = np.maximum(cells.a + more, cells.floor)
    start = np.maximum(x, np.log(mode))
    fall = cells.fall(start, more) + _DROP
    return last_inside(lambda v: cells.fall(v, more) < fall, start, np.log(2 * mode) + np.log1p(fall / mode))[1]
