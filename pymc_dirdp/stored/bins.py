"""Bins of a column of numbers whose edges were chosen privately, and what choosing them has cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, final, override
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.accounting.entries import one_line
from pymc_dirdp.counting.intervals import interval_of
from pymc_dirdp.display import Sections
from pymc_dirdp.mechanisms.choice import ChoiceMechanism
from pymc_dirdp.mechanisms.quantiles import QuantilesMechanism
from pymc_dirdp.stored.choice import PrivateChoice

__all__ = ["Bins"]

# So that a model with their labels is not planned as if they were public.
_UNPAID: WeakValueDictionary[int, "Bins"] = WeakValueDictionary()
# The identities of those that a release has covered.
_RELEASED: set[str] = set()


@final
@dataclass(frozen=True, kw_only=True)
class Bins(PrivateChoice):
    """The bins of a column, as :func:`choose_bins` has chosen them. They are public, and may be published.

    A bin holds the numbers from its lower edge to below its upper edge. The object holds no count.

    Attributes
    ----------
    column : str
        What the numbers are.
    edges : tuple of float
        In rising order; one fewer than there are bins.
    mechanism : QuantilesMechanism
        How they were chosen, with its privacy curves.
    guarantee : Guarantee
        What choosing them keeps, by itself.
    unit : str
        Whom that protects.
    identity : str
        A random text, which tells two choices apart that came out the same: both have cost.
    entry : Receipt or None
        The entry of the ledger that holds what it has cost.
    reproducible : bool
        Whether a seed was used, so that the choice is not private.
    library_version : str

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> ledger = dirdp.Ledger(dirdp.PureDP(epsilon=5.0))
    >>> records = {"age": [20, 30, 40, 50] * 500}
    >>> bins = dirdp.choose_bins(
    ...     dirdp.PureDP(epsilon=4.0), records, "age", n_bins=2, candidates=[35, 60], ledger=ledger
    ... )
    >>> bins.labels
    ('below 35', '35 or more')
    >>> dirdp.count({"age": bins.label(records["age"])}, ["age"], categories={"age": bins.labels}).tolist()
    [1000, 1000]
    """

    column: str
    edges: tuple[float, ...]
    mechanism: QuantilesMechanism

    called: ClassVar[str] = "bins"
    mechanism_class: ClassVar[type[ChoiceMechanism]] = QuantilesMechanism

    def __post_init__(self) -> None:
        if not self.recorded:
            # By its place in memory: a copy that came from a file is equal, and may live longer.
            _UNPAID[id(self)] = self

    @property
    def released(self) -> bool:
        """Whether the guarantee of a release of this process has covered these bins."""
        return self.identity in _RELEASED

    def mark_released(self) -> None:
        """Remember that the guarantee of a release covers these bins."""
        _RELEASED.add(self.identity)

    @staticmethod
    def unpaid() -> tuple["Bins", ...]:
        """The bins of this process whose cost no ledger holds, as long as somebody holds them."""
        return tuple(_UNPAID.values())

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each bin, in rising order: the categories of the column."""
        names = [f"{edge!r}".removesuffix(".0") for edge in self.edges]
        between = [f"{low} to below {high}" for low, high in pairwise(names)]
        return (f"below {names[0]}", *between, f"{names[-1]} or more")

    def label(self, values: Any) -> NDArray[np.str_]:
        """The name of the bin of each number. **Secret**, like the numbers.

        Parameters
        ----------
        values : one-dimensional array or column of numbers
            Without missing values.

        Raises
        ------
        DataError
            If a value is missing or is no number.
        """
        return np.array(self.labels)[interval_of(values, self.edges, self.column)]

    @override
    def _told(self) -> tuple[str, Sections]:
        lines = [
            ("bins", ", ".join(self.labels)),
            ("cost", f"{self.guarantee}, for {self.adjacency} of one {self.unit}"),
            ("how", self.in_short),
            self._in_ledger,
        ]
        if self.reproducible:
            lines.append(("NOT PRIVATE", "they were chosen with a seed"))
        return f"Bins of {self.column}, chosen privately", [("", lines)]

    @property
    @override
    def in_short(self) -> str:
        return (
            f"{self.mechanism.n_bins - 1} choices among {self.mechanism.n_candidates} candidates by the exponential "
            f"mechanism, with a scale of {self.mechanism.scale:.4g} records"
        )

    @property
    @override
    def _what_it_decides(self) -> str:
        return f"where the bins of {self.column} end was"

    @property
    @override
    def _chosen(self) -> dict[str, Any]:
        return {"column": self.column, "edges": list(self.edges)}

    @staticmethod
    @override
    def _read(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"column": one_line(column=facts["column"]), "edges": tuple(facts["edges"])}

    @property
    @override
    def _is_consistent(self) -> bool:
        numbers = all(type(edge) is float and math.isfinite(edge) for edge in self.edges)
        rising = numbers and all(low < high for low, high in pairwise(self.edges))
        return rising and 0 < len(self.edges) < self.mechanism.n_bins
