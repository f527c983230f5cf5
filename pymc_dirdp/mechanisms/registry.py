"""The mechanisms by name, and what `plan(mechanism=...)` takes instead of a name.

`plan(mechanism=...)` takes the kind of a mechanism; files have the name of its class. A mechanism with settings has a
settings class.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, final

from pymc_dirdp.checks import one_of
from pymc_dirdp.literals import MarginalsNoise, MeasureName, MechanismName, Strategy, options_of
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism, ZeroSumMarginalsMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.signatures import user_facing

# Add a new mechanism in one line. The order is that of preference. A kind may have a second class for tables whose
# numbers of records are public, or that class only.
_KNOWN: dict[str, type[TableMechanism]] = {
    mechanism.__name__: mechanism
    for mechanism in (
        DirichletMechanism,
        DiscreteGaussianMechanism,
        ZeroSumGeometricMechanism,
        GeometricMechanism,
        MarginalsMechanism,
        ZeroSumMarginalsMechanism,
        JointTableMechanism,
        ZeroSumJointTableMechanism,
    )
}


def kinds() -> tuple[str, ...]:
    """The kinds of mechanism that a release can name."""
    return tuple(dict.fromkeys(mechanism.kind for mechanism in _KNOWN.values()))


def by_kind(kind: str, *, public_totals: bool = False) -> type[TableMechanism]:
    """The class of a kind. If the kind has two, `public_totals` selects the one that publishes numbers of records."""
    forms = {mechanism.needs_public_totals: mechanism for mechanism in _KNOWN.values() if mechanism.kind == kind}
    return forms[public_totals] if public_totals in forms else forms[not public_totals]


def noises(*, public_totals: bool = False, joint: bool = False) -> dict[str, type[NoisyCounts]]:
    """Mechanisms that add noise to any table, by kind.

    With `joint`, those whose noise several tables or several rows can share.
    """
    by_name = {kind: by_kind(kind, public_totals=public_totals) for kind in kinds()}
    return {
        kind: mechanism
        for kind, mechanism in by_name.items()
        if issubclass(mechanism, NoisyCounts) and issubclass(mechanism, JointTableMechanism) == joint
    }


def by_class_name() -> dict[str, type[TableMechanism]]:
    """All mechanisms that a release file may name, by the name of the class."""
    return dict(_KNOWN)


@contextmanager
def registered(mechanism: type[TableMechanism]) -> Iterator[None]:
    """Register your own mechanism for the duration of a `with` block.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.geometric import GeometricMechanism
    >>> with registered(GeometricMechanism):
    ...     "geometric" in kinds()
    True
    """
    before = dict(_KNOWN)
    _KNOWN[mechanism.__name__] = mechanism
    try:
        yield
    finally:
        _KNOWN.clear()
        _KNOWN.update(before)


STRATEGIES = options_of(Strategy)
MEASURES = options_of(MeasureName)

type Measure = MeasureName | Iterable[str | tuple[str, ...]]


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    """Settings of `mechanism="dirichlet"`, a draw from a tempered and smoothed posterior.

    Attributes
    ----------
    strategy : {"optimal", "temper", "inflate", "algorithm-1"}, default "optimal"
        How the posterior is changed to satisfy the guarantee.

        * `"optimal"`: the pair of `r` and `alpha = prior + s`, `s >= 0`, on the boundary of the guarantee with the
          least a priori expected Kullback-Leibler divergence, see `objective` of :func:`pymc_dirdp.calibrate`.
        * `"temper"`: `alpha = prior` and the largest `r`. It is above 1 if the guarantee allows a draw that is more
          concentrated than the posterior.
        * `"inflate"`: `r = 1` and the least `s` (P2 section 4.1).
        * `"algorithm-1"`: P1 Algorithm 1 with its own bound, for `RenyiDP` only. It ignores the prior:
          `alpha = 1 + 4 (order - 1) r` in every cell.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> temper = dirdp.mechanisms.Dirichlet(strategy="temper")
    >>> dirdp.calibrate(dirdp.ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1], mechanism=temper).alpha
    array([1., 1., 1.])
    """

    strategy: Strategy = "optimal"
    kind: ClassVar[str] = "dirichlet"

    def __post_init__(self) -> None:
        one_of(STRATEGIES, strategy=self.strategy)


@user_facing
@final
@dataclass(frozen=True, kw_only=True)
class Marginals:
    """Settings of `mechanism="marginals"`, noisy marginals of all tables of a model.

    Attributes
    ----------
    measure : {"levels", "families", "variables"} or list of str or tuple of str, default "levels"
        Which marginals are measured. `"levels"` measures for each table the marginal of its variable, the marginals of
        the variable with each parent, and the table itself. `"families"` measures the tables only, `"variables"` each
        variable only. A list names the axes of each marginal.
    noise : {"auto", "gaussian", "geometric"}, default "auto"
        `"auto"` takes the noise with the smaller variance at the same guarantee. This is Gaussian noise unless there
        are few marginals or the guarantee is pure.
    weights : mapping of str or tuple of str to float, optional
        Relative precisions of the marginals, by the name or the tuple of names of their axes; 1 for marginals that are
        not named. By default, precisions depend on the number of cells whose counts exceed the noise. In a classifier
        the marginal of the class gets a fifth of the precision, and marginals without the class nearly none.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> dirdp.mechanisms.Marginals(measure=["class", ("class", "sex")], weights={"class": 4}).kind
    'marginals'
    """

    measure: Measure = "levels"
    noise: MarginalsNoise = "auto"
    weights: Mapping[Any, float] | None = None
    kind: ClassVar[str] = "marginals"

    def __post_init__(self) -> None:
        one_of(options_of(MarginalsNoise), noise=self.noise)


SETTINGS: dict[str, type[Dirichlet | Marginals]] = {settings.kind: settings for settings in (Dirichlet, Marginals)}
"""The settings classes, by the name of the mechanism with default settings."""


def kind_of(mechanism: MechanismName | Dirichlet | Marginals) -> str:
    """The name of a mechanism, with or without settings."""
    return mechanism.kind if isinstance(mechanism, Dirichlet | Marginals) else mechanism
