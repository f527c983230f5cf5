"""The public facts about a table and what it is counted from. They hold no graph, no model and no data."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import positive_array

__all__ = ["Family", "KindName", "Likelihood", "Table", "View"]

Family = Literal["dirichlet", "beta"]
KindName = Literal["multinomial", "categorical", "dirichlet-multinomial", "binomial", "bernoulli", "beta-binomial"]


class View:
    """A public map from the cells that a likelihood counts in to those of a table.

    Parameters
    ----------
    cells : ndarray of int64, shape (*rows, k)
        For every cell that the likelihood counts in: its number among the cells of the table, in C order; -1 if it
        belongs to another table.
    by_codes : bool, default False
        Whether codes, which are data, decide between this table and others.
    """

    __slots__ = ("by_codes", "cells")
    cells: Integers
    by_codes: bool

    def __init__(self, cells: NDArray[Any], by_codes: bool = False) -> None:
        own = np.array(cells, dtype=np.int64)
        own.flags.writeable = False
        self.cells, self.by_codes = own, by_codes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the counts that the likelihood makes."""
        return self.cells.shape

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which rows of the likelihood belong to this table."""
        return np.asarray(self.cells[..., 0] >= 0)

    def carried(self, counts: Integers, shape: tuple[int, ...]) -> Integers:
        """The counts of the table, of this shape, from those that the likelihood has made."""
        inside = self.cells >= 0
        found = np.zeros(int(np.prod(shape)), dtype=np.int64)
        np.add.at(found, self.cells[inside], counts[inside])
        return found.reshape(shape)

    def rows(self, n_categories: int) -> Integers:
        """The number of the table's row behind each row of the likelihood; -1 if it belongs to another table."""
        return np.where(self.inside, self.cells[..., 0] // n_categories, -1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        return np.array_equal(self.cells, other.cells) and self.by_codes == other.by_codes

    def __hash__(self) -> int:
        return hash((self.shape, self.cells.tobytes(), self.by_codes))

    def __reduce__(self) -> tuple[Any, ...]:
        return View, (np.array(self.cells), self.by_codes)

    def __repr__(self) -> str:
        # The digest of a plan has this text, so it tells views apart.
        digest = hashlib.sha256(self.cells.tobytes()).hexdigest()[:16]
        return f"View(shape={self.shape}, by_codes={self.by_codes}, sha256={digest})"


@dataclass(frozen=True)
class Likelihood:
    """One observed variable whose records are counted in a table.

    Attributes
    ----------
    name : str
        The observed variable.
    kind : str
        One of `KINDS`.
    rows : tuple of (int or None)
        For every row axis of what the likelihood sees of the table, the batch axis of the observed variable that
        follows it; None where codes decide it. All other batch axes are repeated records and are summed over.
    parents : tuple of str
        For every None in `rows`, whose codes decide it: a variable's name, or "an array" for one without.
    view : View or None
        What it sees of the table; None if that is the table itself.
    """

    name: str
    kind: KindName
    rows: tuple[int | None, ...]
    parents: tuple[str, ...] = ()
    view: View | None = None

    def shape(self, of_table: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the counts that it makes, for a table of this shape."""
        return of_table if self.view is None else self.view.shape


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The public facts about one table of counts and its conjugate prior.

    A table holds no graph, no model and no data, and can be pickled. Two tables are equal if all their facts are equal.

    Attributes
    ----------
    name : str
        The variable that is released: the Dirichlet or Beta variable, or `f"{observed}_p"` for a
        `pm.DirichletMultinomial` or `pm.BetaBinomial`, where it is integrated out.
    family : {"dirichlet", "beta"}
        The family of the prior.
    prior : ndarray of float64, shape (..., d), read-only
        The parameters of the prior, one for each cell of the table. A Beta has d = 2: success, then failure. With
        d = 1 every share is 1, whatever the data are, so a release says nothing of them and spends nothing on it.
    dims : tuple of (str or None), or None
        PyMC's dims of the released variable. The categories of a Beta are no axis of it.
    coords : mapping of str to tuple or None
        The labels of these dims; None for a dim without labels.
    likelihoods : tuple of Likelihood
        The observed variables whose records are counted. With several, a person's records may be in each of them.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> (table,) = dirdp.tables(model)
    >>> table.prior
    array([1., 1., 1., 1.])
    """

    name: str
    family: Family
    prior: NDArray[np.float64]
    dims: tuple[str | None, ...] | None = None
    coords: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    likelihoods: tuple[Likelihood, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(fewest=1, **{f"the prior of {self.name!r}": self.prior}))
        object.__setattr__(self, "coords", MappingProxyType(dict(self.coords)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table of counts, categories last."""
        return self.prior.shape

    @property
    def n_rows(self) -> int:
        """The number of vectors of probabilities."""
        return math.prod(self.shape[:-1])

    @property
    def n_categories(self) -> int:
        """The number of cells of a row."""
        return self.shape[-1]

    def _facts(self) -> tuple[Any, ...]:
        return self.name, self.family, self.dims, dict(self.coords), self.likelihoods

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self._facts() == other._facts() and np.array_equal(self.prior, other.prior)

    def __hash__(self) -> int:
        return hash((self.name, self.family, self.shape, self.dims, self.likelihoods))

    def __reduce__(self) -> tuple[Any, ...]:
        # It is rebuilt by __init__, because pickle forgets that an array is read-only.
        return Table, (self.name, self.family, np.array(self.prior), self.dims, dict(self.coords), self.likelihoods)

    def __repr__(self) -> str:
        observed = ", ".join(repr(likelihood.name) for likelihood in self.likelihoods)
        return f"Table({self.name!r}, {self.family}, shape={self.shape}, observed as {observed})"
