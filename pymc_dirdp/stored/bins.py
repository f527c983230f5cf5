"""Bins of a column of numbers whose edges were chosen privately, and what choosing them has cost."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.accounting.entries import one_line
from pymc_dirdp.counting.intervals import interval_of
from pymc_dirdp.display import Labelled, Sections
from pymc_dirdp.errors import ArgumentError, DirdpError
from pymc_dirdp.mechanisms.quantiles import QuantilesMechanism
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.stored.readable import digest, guarantee_facts, guarantee_of, in_lines, parsed, plain

__all__ = ["Bins"]

_FORMAT, _VERSION = "pymc_dirdp bins", 1
_AGAIN = "Ask for the file again. To choose again costs privacy again."


@final
@dataclass(frozen=True)
class Bins(Labelled):
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
        What choosing them keeps, by itself. A ledger holds it.
    unit : str
        Whom that protects.
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
    guarantee: Guarantee
    unit: str
    reproducible: bool
    library_version: str

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
            ("cost", f"{self.guarantee}, for {self.mechanism.adjacency} of one {self.unit}; a ledger holds it"),
            (
                "how",
                f"{self.mechanism.n_bins - 1} choices among {self.mechanism.n_candidates} candidates by the "
                f"exponential mechanism, with a scale of {self.mechanism.scale:.4g} records",
            ),
        ]
        if self.reproducible:
            lines.append(("NOT PRIVATE", "they were chosen with a seed"))
        return f"Bins of {self.column}, chosen privately", [("", lines)]

    @property
    def facts(self) -> dict[str, Any]:
        """All that it says, in texts, numbers, lists and dicts."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "promise": str(self.guarantee),
            "column": self.column,
            "edges": list(self.edges),
            "mechanism": self.mechanism.facts,
            "guarantee": guarantee_facts(self.guarantee),
            "unit": self.unit,
            "reproducible": self.reproducible,
            "library_version": self.library_version,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The bins of which these are the facts. Nothing is believed.

        Raises
        ------
        ArgumentError
            If they are no facts of bins, contradict themselves, or the choice does not keep its guarantee.
        """
        try:
            found = cls(
                column=one_line(column=facts["column"]),
                edges=tuple(facts["edges"]),
                mechanism=QuantilesMechanism.from_facts(facts["mechanism"]),
                guarantee=guarantee_of(facts["guarantee"]),
                unit=one_line(unit=facts["unit"]),
                reproducible=facts["reproducible"],
                library_version=one_line(library_version=facts["library_version"]),
            )
            numbers = all(type(edge) is float and math.isfinite(edge) for edge in found.edges)
            rising = numbers and all(low < high for low, high in pairwise(found.edges))
            # Written again, it has to be the same: so it says nothing else.
            same = rising and 0 < len(found.edges) < found.mechanism.n_bins and plain(found.facts) == plain(facts)
            # The number 1 is equal to True, and no truth value.
            if not same or type(found.reproducible) is not bool:
                raise ValueError
        except DirdpError as error:
            raise ArgumentError(f"The bins are damaged: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise ArgumentError(
                f"The bins are damaged: they say what no bins say, or contradict themselves. {_AGAIN}"
            ) from None
        if not found.mechanism.satisfies(found.guarantee):
            raise ArgumentError(f"The bins do not keep {found.guarantee}, although they say so. {_AGAIN}")
        return found

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the bins to a file that people can read.

        Parameters
        ----------
        path : path-like
            The file, which is made or replaced.
        """
        Path(path).write_text(in_lines({"digest": digest(self.facts)} | self.facts), encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Read bins that :meth:`to_json` wrote. Nothing in the file is believed.

        Raises
        ------
        ArgumentError
            If it holds no bins, was changed, contradicts itself, or does not keep its guarantee.
        OSError
            If the file cannot be read.
        """
        text = Path(path).read_bytes()
        facts, _ = parsed(text, _FORMAT, _VERSION, what="bins", again=_AGAIN, made_by="choose_bins()")
        return cls.from_facts(facts)
