"""What mechanisms share whose release is a draw from a Dirichlet law: its likelihood, a product over cells and rows."""

import abc
from typing import override

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.cut_densities import CELLS, dirichlet_laws
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood
from pymc_dirdp.mechanisms.urn_laws import urn_laws
from pymc_dirdp.privacy.curves import CurvesOf
from pymc_dirdp.privacy.finite_laws import FiniteLaws
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.entropy import Seed, generator
from pymc_dirdp.sampling.exact import urn_counts
from pymc_dirdp.sampling.fast import fast_dirichlet

__all__ = ["DirichletDraws"]

# Outputs of each data set that an audit draws from an urn.
_FEWER = 10_000
# The least normal double.
_TINY = 2.3e-308
# Rows of a draw add up to 1 within this tolerance, for any number of categories that is in use.
_ROUNDING = 1e-9


class DirichletDraws(CurvesOf, Mechanism):
    """Release draws from a Dirichlet law whose parameters depend on the secret, in whole numbers from a Pólya urn."""

    urn_steps: int | None
    """The public number of steps of the urn whose counts the curves are about; None if they are about the draw."""

    @override
    def checked_sampler(self, sampler: str | None) -> str:
        if super().checked_sampler(sampler) == "fast" and self.urn_steps is not None:
            raise ArgumentError(
                "The promise is for the counts of an urn, so sampler='fast' does not keep it. Use sampler='exact', or "
                "leave urn_steps out and ask for ApproxDP, RenyiDP or TruncatedCDP with a finite omega."
            )
        return sampler or self.samplers[0]

    @override
    def checked_steps(self, steps: int | None, sampler: str) -> int | None:
        if steps is None or sampler != "exact":
            return super().checked_steps(steps, sampler)
        return integer(1, steps=steps)

    @override
    def outputs_to_audit(self, sampler: str) -> int:
        # An urn takes a thousand times as long as another sampler.
        return _FEWER if sampler == "exact" else super().outputs_to_audit(sampler)

    @abc.abstractmethod
    def concentration(self, counts: ArrayLike) -> Array:
        """The parameters of the Dirichlet law. **Secret**, as the counts are."""

    @abc.abstractmethod
    def _parameters(self, secret: Array) -> Array:
        """The same for a secret that has been checked, in its place: a new array costs as much as the sum."""

    @property
    def _least_parameter(self) -> float:
        """A public number that no parameter is below."""
        return 0.0

    @abc.abstractmethod
    def _urn_draws(self, secret: Array, draws: int, steps: int | None, bits: Bits) -> Array:
        """Draws of the urn; None takes the default number of steps."""

    def _draws(self, secret: Array, *, draws: int, sampler: str, steps: int | None, random_seed: Seed) -> Array:
        """Draws for a secret that has been checked and is an array of its own, which is overwritten."""
        draws = integer(1, draws=draws)
        if steps is not None:
            integer(1, steps=steps)
        if self.checked_sampler(sampler) == "exact":
            if self.urn_steps not in (None, steps or self.urn_steps):
                raise ArgumentError("The curves are those of another number of steps. Leave steps out.")
            return self._urn_draws(secret, draws, steps, Bits(random_seed))
        if steps is not None:
            raise ArgumentError("steps is for sampler='exact'.")
        return fast_dirichlet(self._parameters(secret), draws, generator(random_seed), least=self._least_parameter)

    @override
    def log_likelihood_ratio(self, outputs: Array, x: Array, y: Array, *, floor: float = 0.0) -> Array:
        if self.urn_steps is not None:
            return self.log_likelihood(outputs, x) - self.log_likelihood(outputs, y)
        # Cells that do not change cancel exactly.
        u, v = self.concentration(x), self.concentration(y)
        changed = u != v
        # What claims to be a mechanism may put out anything.
        logs = np.log(np.maximum(outputs[..., changed] + floor, _TINY))
        return np.asarray(_log_beta(v) - _log_beta(u) + logs @ (u - v)[changed])

    @override
    def output_laws(self, x: Array, y: Array, cells: int | None = None) -> FiniteLaws:
        u, v = self.concentration(x), self.concentration(y)
        return dirichlet_laws(u, v, cells or CELLS) if self.urn_steps is None else urn_laws(u, v, self.urn_steps)

    @staticmethod
    def _cell_terms(u: Array, output: ArrayLike, steps: int | None) -> Array:
        """The logarithm of the factor of each cell with parameter u: of a density, or of a probability of the urn."""
        return _terms(u, _seen(output, steps), steps)

    @classmethod
    def _row_likelihood(cls, alpha: Array, r: float, output: Array, steps: int | None) -> RowLikelihood:
        """One row of an output as a function of its counts, with parameters `r * counts + alpha`. Shapes (d,)."""
        if steps is None and (np.any(output <= 0) or abs(output.sum() - 1) > _ROUNDING):
            raise ArgumentError("Expected a draw of positive shares that add up to 1. A sampler puts out nothing else.")
        seen, total = _seen(output, steps), alpha.sum()
        return RowLikelihood(
            lambda counts, cells: _terms(r * counts + alpha[cells], seen[cells], steps),
            lambda totals: cls._row_terms(r * totals + total, steps),
            smooth=True,
        )

    @staticmethod
    def _row_terms(total: Array, steps: int | None) -> Array:
        """The logarithm of the factor of each row whose parameters add up to `total`."""
        if steps is None:
            return np.asarray(gammaln(total))
        return np.asarray(gammaln(total) - gammaln(total + steps) + gammaln(steps + 1.0))


def _log_beta(u: Array) -> float:
    """The sum over rows of the logarithm of the Beta function."""
    return float(np.sum(gammaln(u).sum(axis=-1) - gammaln(u.sum(axis=-1))))


def _seen(output: ArrayLike, steps: int | None) -> Array:
    """What the likelihood depends on: logarithms of the components, or the counts of the urn."""
    y = np.asarray(output, dtype=np.float64)
    return np.log(np.maximum(y, _TINY)) if steps is None else urn_counts(y, steps).astype(np.float64)


def _terms(u: Array, seen: Array, steps: int | None) -> Array:
    if steps is None:
        return np.asarray((u - 1) * seen - gammaln(u))
    return np.asarray(gammaln(u + seen) - gammaln(u) - gammaln(seen + 1.0))
