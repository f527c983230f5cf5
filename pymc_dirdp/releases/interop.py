"""Mechanisms and releases for other libraries of differential privacy: optional extras, imported on demand."""

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import positive
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.opened import computable, open_release

__all__ = ["as_mechanism", "to_dp_accounting", "to_opendp"]


def as_mechanism(release: Any) -> PrivacyCurves:
    """The privacy curves of a release, computed from its numbers.

    Parameters
    ----------
    release : xarray.DataTree or PrivacyCurves
        From :func:`pymc_dirdp.sample` or :func:`pymc_dirdp.load`. Curves, such as those of a mechanism,
        are returned as they are.

    Returns
    -------
    curves : PrivacyCurves
        The curves of all tables and draws together.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or its curves do not follow from its numbers.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=1.3, delta=1e-6), model)
    >>> dirdp.interop.as_mechanism(release).epsilon(1e-6) <= 1.3
    True
    """
    return release if isinstance(release, PrivacyCurves) else open_release(release).curves


def to_dp_accounting(source: Any, *, step: float = 1e-4) -> Any:
    """A pessimistic privacy loss distribution of dp_accounting.

    Parameters
    ----------
    source : PrivacyCurves or xarray.DataTree
        A mechanism, a composition of mechanisms, or a release.
    step : float, default 1e-4
        The distance between points of the grid of losses, in nats.

    Returns
    -------
    pld : dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
        Its epsilons and deltas are upper bounds, equal to those of the mechanism on the grid.

    Raises
    ------
    ImportError
        If dp_accounting is not installed; the message has the command to install it.

    References
    ----------
    Doroshenko et al. (2022), Connect the dots, https://doi.org/10.56553/popets-2022-0122. Theory, section 7.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> loss = to_dp_accounting(dirdp.mechanisms.GeometricMechanism([1, 1], 2.0))  # doctest: +SKIP
    """
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ImportError as error:
        raise ImportError("This needs dp_accounting: pip install dp-accounting") from error
    mechanism = as_mechanism(source)
    step = positive(step=step)

    def of_curve(forward: NDArray[np.float64], backward: NDArray[np.float64]) -> Any:
        n = len(forward)
        losses = step * np.arange(1, n)
        below = -np.expm1(-losses) + np.exp(-losses) * backward[1:]
        return pld_pmf.create_pmf_pessimistic_connect_dots(
            step, np.arange(1 - n, n), np.concatenate([below[::-1], forward])
        )

    def loss_distribution(part: PrivacyCurves) -> Any:
        with nullcontext() if isinstance(source, PrivacyCurves) else computable():
            curves, epsilons = part._curves, step * np.arange(_points(part, step), dtype=np.float64)
            forward, backward = (way._deltas(epsilons) for way in (curves, curves._reversed))
        remove = of_curve(forward, backward)
        add = remove if curves is curves._reversed else of_curve(backward, forward)
        return privacy_loss_distribution.PrivacyLossDistribution(remove, add)

    parts = mechanism.composed_of
    first, *others = (
        loss_distribution(part) if times == 1 else loss_distribution(part).self_compose(times) for part, times in parts
    )
    for other in others:
        first = first.compose(other)
    return first


def _points(mechanism: PrivacyCurves, step: float, *, most: int = 2**20) -> int:
    top = step
    # Losses with a probability below this one count as infinite.
    while mechanism.delta(top) > 1e-20 and top < most * step:
        top *= 1.3
    return min(math.ceil(top / step), most) + 2


def to_opendp(mechanism: TableMechanism) -> Any:
    """A user measurement of OpenDP, which maps counts to one draw, or to noisy counts, under Rényi divergence.

    Parameters
    ----------
    mechanism : TableMechanism
        For example a :class:`pymc_dirdp.mechanisms.DirichletMechanism`, or integer noise on counts. It needs an exact
        sampler. Its adjacency is the input metric: `d_in` is 1 for neighbours.

    Returns
    -------
    measurement : opendp.mod.Measurement
        `measurement(counts)` draws with random bits of the operating system; `measurement.map(1)(order)` is the Rényi
        divergence in nats.

    Raises
    ------
    ImportError
        If opendp is not installed; the message has the command to install it.

    Notes
    -----
    OpenDP accepts measurements that were proved outside of it only with its features `contrib` and
    `honest-but-curious`. This function enables them for the whole process.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> measurement = to_opendp(dirdp.mechanisms.GeometricMechanism([1, 1], 2.0))  # doctest: +SKIP
    """
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError("This needs OpenDP: pip install opendp") from error
    known = TableMechanism.of(mechanism)
    if known is None:
        raise ArgumentError(
            f"Expected a mechanism for a table of counts, such as a DirichletMechanism, got {type_name(mechanism)}."
        )
    records_are_public = adjacency_by_name(mechanism.adjacency).records_are_public
    dp.enable_features("contrib", "honest-but-curious")
    shape = mechanism.shape

    def draw(counts: ArrayLike) -> Any:
        # `releases` is for simulation and may not use random bits of the operating system.
        mechanism.check(counts)
        n_records = sum(map(int, np.asarray(counts).ravel().tolist())) if records_are_public else None
        return mechanism.draw(counts, 1, sampler="exact", n_records=n_records).values[0]

    def privacy_map(d_in: Any) -> Any:
        if d_in not in (0, 1):
            raise ValueError("the divergence is known for neighbours only: d_in is 0 or 1")
        return lambda order: mechanism.renyi(float(order)) if d_in else 0.0

    return dp.m.make_user_measurement(
        dp.user_domain(f"counts of shape {shape}", lambda counts: np.shape(counts) == shape),
        dp.user_distance(f"{mechanism.adjacency}, in neighbours"),
        dp.renyi_divergence(),
        function=draw,
        privacy_map=privacy_map,
    )


def __dir__() -> list[str]:
    """The public names, without imports."""
    return sorted(__all__)
