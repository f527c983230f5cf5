"""The mechanisms by name: by the kind in `plan(mechanism=...)`, and by the class, which files hold."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymc_dirdp.mechanisms.base import TableMechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts

__all__ = ["by_class_name", "kinds", "noises", "registered"]

# A new mechanism is one more line. They stand in the order in which they are preferred.
_KNOWN: dict[str, type[TableMechanism]] = {
    mechanism.kind: mechanism
    for mechanism in (
        DirichletMechanism,
        DiscreteGaussianMechanism,
        GeometricMechanism,
        GaussianMechanism,
        LaplaceMechanism,
    )
}


def kinds() -> tuple[str, ...]:
    """The kinds of mechanism that a release can name."""
    return tuple(_KNOWN)


def noises(*, exact: bool = False) -> dict[str, type[NoisyCounts]]:
    """Mechanisms that add noise to counts, by kind; with `exact` only those that are drawn in whole numbers."""
    return {
        kind: mechanism
        for kind, mechanism in _KNOWN.items()
        if issubclass(mechanism, NoisyCounts) and (not exact or "exact" in mechanism.samplers)
    }


def by_class_name() -> dict[str, type[TableMechanism]]:
    """Every mechanism that the file of a release may name."""
    return {mechanism.__name__: mechanism for mechanism in _KNOWN.values()}


@contextmanager
def registered(mechanism: type[TableMechanism]) -> Iterator[None]:
    """A mechanism of your own among the known ones, as long as the block lasts.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.geometric import GeometricMechanism
    >>> with registered(GeometricMechanism):
    ...     "geometric" in kinds()
    True
    """
    before = dict(_KNOWN)
    _KNOWN[mechanism.kind] = mechanism
    try:
        yield
    finally:
        _KNOWN.clear()
        _KNOWN.update(before)
