"""The mechanisms by name, and what `plan(mechanism=...)` takes instead of a name.

A name is the kind in `plan(mechanism=...)`, or the class, which files hold. A mechanism with settings of its own has an
object for them.
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

# A new mechanism is one more line. They stand in the order in which they are preferred. A kind may have one form more
# for tables whose numbers of records are public, or that form alone.
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
    """The class of a kind: the one that publishes numbers of records where they are public, or if there is no other."""
    forms = {one.needs_public_totals: one for one in _KNOWN.values() if one.kind == kind}
    return forms[public_totals] if public_totals in forms else forms[not public_totals]


def noises(*, public_totals: bool = False, joint: bool = False) -> dict[str, type[NoisyCounts]]:
    """Mechanisms that add noise to any table, by kind.

    With `joint` they are those of which several tables, or several rows, can share one noise.
    """
    found = {kind: by_kind(kind, public_totals=public_totals) for kind in kinds()}
    return {
        kind: mechanism
        for kind, mechanism in found.items()
        if issubclass(mechanism, NoisyCounts) and issubclass(mechanism, JointTableMechanism) == joint
    }


def by_class_name() -> dict[str, type[TableMechanism]]:
    """Every mechanism that the file of a release may name."""
    return dict(_KNOWN)


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
    """A draw from a tempered and smoothed posterior: `mechanism="dirichlet"`, where the strategy is not the default.

    Attributes
    ----------
    strategy : {"optimal", "temper", "inflate", "algorithm-1"}, default "optimal"
        Where the room for privacy comes from.

        * `"optimal"`: the pair of `r` and `alpha = prior + s`, `s >= 0`, on the boundary of the guarantee with the
          least a priori expected Kullback-Leibler divergence, see `objective` of :func:`pymc_dirdp.calibrate`; or the
          best pair of `r` and `alpha = max(prior, t)`, where its divergence is less by a per cent at least.
        * `"temper"`: `alpha = prior` and the largest `r`. It is above 1 where the guarantee has room for a draw that is
          more concentrated than the posterior.
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
    """Noisy marginals of all tables of a model: `mechanism="marginals"`, where the default marginals are not wanted.

    Attributes
    ----------
    measure : {"levels", "families", "variables"} or list of str or tuple of str, default "levels"
        Which marginals are measured. `"levels"` are for each table the marginal of its variable, those of the variable
        with each parent, and the table itself; `"families"` are the tables alone, and `"variables"` each variable
        alone. A list names the axes of each.
    noise : {"auto", "gaussian", "geometric"}, default "auto"
        `"auto"` takes the kind with the smaller variance at the same guarantee: Gaussian noise unless there are few
        marginals, or the guarantee is pure.
    weights : mapping of str or tuple of str to float, optional
        Relative precisions of the marginals, by a name or a tuple of names of their axes; 1 for those that are not
        named. Without it, precisions follow from the number of cells that the noise leaves visible. In a classifier the
        class by itself gets a fifth of them, and marginals without the class nearly nothing.

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


SETTINGS: dict[str, type[Dirichlet | Marginals]] = {one.kind: one for one in (Dirichlet, Marginals)}
"""The mechanisms with settings, by the name that stands for their defaults."""


def kind_of(mechanism: MechanismName | Dirichlet | Marginals) -> str:
    """The name of a mechanism, with or without settings."""
    return mechanism.kind if isinstance(mechanism, Dirichlet | Marginals) else mechanism
