"""The released probabilities, checked. Predictions read them from a release or from a file."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ReleaseError, shown
from pymc_dirdp.stored.untrusted import Group, group_at, refuse_others

__all__ = ["Drawn", "drawn_tables", "probabilities", "stored_labels"]

# Rows add up to 1 within this tolerance, for any number of categories that is in use.
_ROUNDING = 1e-9


@final
@dataclass(frozen=True, eq=False)
class Drawn:
    """The draws of one table.

    Attributes
    ----------
    group : Group
        The group of its mechanism.
    family : {"dirichlet", "beta"}
    values : array, shape (chains, draws, ...)
        Probabilities of success for a Beta; otherwise the last axis adds up to 1.
    labels : tuple of (str, list)
        The name of each further dim, and the labels along it if it has any.
    """

    group: Group
    family: str
    values: Array
    labels: tuple[tuple[str, list[Any] | None], ...]

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the dims after `chain` and `draw`."""
        return tuple(dim for dim, _ in self.labels)

    @property
    def positive(self) -> Array:
        """The values, or an error if one of them is 0, which no sampler draws."""
        if not np.all(self.values > 0):
            raise self.group.damaged("some released probability is 0")
        return self.values


def drawn_tables(release: Any) -> dict[str, Drawn]:
    """The draws of each table, by name, from the groups `posterior` and `mechanism` of a release.

    Raises
    ------
    ReleaseError
        If there are no such groups, or the draws are no probabilities.
    """
    refuse_others(release)
    children = getattr(release, "children", {})
    if not {"posterior", "mechanism"} <= set(children) or not children["mechanism"].children:
        raise ReleaseError("Expected a release from pymc_dirdp.sample, with the groups posterior and mechanism.")
    posterior = group_at(release, "posterior")
    return {name: _drawn(posterior, group_at(release, "mechanism", name)) for name in children["mechanism"].children}


def stored_labels(group: Group, variable: str) -> tuple[tuple[str, list[Any] | None], ...]:
    """Each dim of a variable but `chain` and `draw`, with its labels if it has any."""
    variables = group.dataset.variables
    return tuple(
        (str(dim), _plain(variables[dim].values) if dim in variables else None)
        for dim in variables[variable].dims
        if dim not in ("chain", "draw")
    )


def _plain(labels: NDArray[Any]) -> list[Any]:
    """Labels as Python values; those that Python has no kind for, such as nanoseconds, as NumPy's."""
    return list(labels) if labels.dtype.kind in "Mmu" else labels.tolist()


def probabilities(posterior: Group, name: str, family: str) -> Array:
    """The draws of one table in the group `posterior`, checked, in an array of shape `(chains, draws, ...)`."""
    values = posterior.array(name)
    dims = posterior.dataset.variables[name].dims
    if not {"chain", "draw"} <= set(dims) or (family == "dirichlet" and len(dims) == 2):
        raise posterior.damaged(f"the draws of {name!r} have the dims {shown(dims)}")
    values = np.moveaxis(values, (dims.index("chain"), dims.index("draw")), (0, 1))
    if not np.all((values >= 0) & (values <= 1 + _ROUNDING)):
        raise posterior.damaged(f"a draw of {name!r} is no probability")
    if family == "dirichlet" and not np.all(np.abs(values.sum(axis=-1) - 1) <= _ROUNDING):
        raise posterior.damaged(f"the probabilities of {name!r} do not add up to 1")
    return values


def _drawn(posterior: Group, group: Group) -> Drawn:
    name = group.path.removeprefix("mechanism/")
    family = group.text("family")
    if family not in ("dirichlet", "beta"):
        raise group.damaged("the family is none that a release can have")
    values = probabilities(posterior, name, family)
    return Drawn(group, family, values, stored_labels(posterior, name))
