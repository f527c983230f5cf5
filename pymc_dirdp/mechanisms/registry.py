"""The mechanisms by name: by the kind in `plan(mechanism=...)`, and by the class, which files hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from pymc_dirdp.mechanisms.continuous_noise import GaussianMechanism, LaplaceMechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.floored import FlooredDirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint_table import JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism, ZeroSumMarginalsMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.table import TableMechanism

__all__ = ["by_class_name", "by_kind", "kinds", "noises", "registered"]

# A new mechanism is one more line. They stand in the order in which they are preferred. A kind may have one form more
# for tables whose numbers of records are public, or that form alone.
_KNOWN: dict[tuple[str, bool], type[TableMechanism]] = {
    (mechanism.kind, mechanism.needs_public_totals): mechanism
    for mechanism in (
        DirichletMechanism,
        DiscreteGaussianMechanism,
        ZeroSumGeometricMechanism,
        GeometricMechanism,
        GaussianMechanism,
        LaplaceMechanism,
        FlooredDirichletMechanism,
        MarginalsMechanism,
        ZeroSumMarginalsMechanism,
        JointTableMechanism,
        ZeroSumJointTableMechanism,
    )
}


# What only papers need is imported when it is named.
_OF_PAPERS = {
    "truncated-geometric": ("truncated_noise", "TruncatedNoiseMechanism"),
    "hellinger": ("hellinger", "HellingerMechanism"),
}


def _load(kind: str) -> None:
    module, name = _OF_PAPERS[kind]
    mechanism = getattr(import_module(f"pymc_dirdp.papers.{module}"), name)
    _KNOWN.setdefault((mechanism.kind, mechanism.needs_public_totals), mechanism)


def kinds() -> tuple[str, ...]:
    """The kinds of mechanism that a release can name."""
    return tuple(dict.fromkeys([*(kind for kind, _ in _KNOWN), *_OF_PAPERS]))


def by_kind(kind: str, *, public_totals: bool = False) -> type[TableMechanism]:
    """The class of a kind: the one that publishes numbers of records where they are public, or if there is no other."""
    if kind in _OF_PAPERS:
        _load(kind)
    forms = _KNOWN.get((kind, False)), _KNOWN.get((kind, True))
    found = (public_totals and forms[1]) or forms[0] or forms[1]
    if found is None:
        raise KeyError(kind)
    return found


def noises(*, exact: bool = False, public_totals: bool = False, joint: bool = False) -> dict[str, type[NoisyCounts]]:
    """Mechanisms that add noise to any table, by kind; with `exact` only those that are drawn in integers.

    With `joint` they are those of which several tables, or several rows, can share one noise.
    """
    found = {kind: by_kind(kind, public_totals=public_totals) for kind in dict.fromkeys(kind for kind, _ in _KNOWN)}
    return {
        kind: mechanism
        for kind, mechanism in found.items()
        if issubclass(mechanism, NoisyCounts)
        and mechanism.is_joint == joint
        and (not exact or "exact" in mechanism.samplers)
    }


def by_class_name() -> dict[str, type[TableMechanism]]:
    """Every mechanism that the file of a release may name."""
    for kind in _OF_PAPERS:
        _load(kind)
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
    _KNOWN[mechanism.kind, mechanism.needs_public_totals] = mechanism
    try:
        yield
    finally:
        _KNOWN.clear()
        _KNOWN.update(before)
