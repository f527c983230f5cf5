"""From a release to the laws of its tables: what has to hold before anybody concludes, and in what words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.inference.posterior import Draws
from pymc_dirdp.inference.table_law import Beliefs, TableLaw
from pymc_dirdp.releases.verification import verified
from pymc_dirdp.stored.outputs import Output, outputs
from pymc_dirdp.stored.release import read

__all__ = ["Conclusion", "conclusions"]

type PerTable[T] = T | Mapping[str, T] | None


@final
class Conclusion:
    """What a release says of one table.

    Attributes
    ----------
    output : Output
        What was put out.
    law : TableLaw
        Of the counts and shares, given that.
    """

    def __init__(self, output: Output, beliefs: Beliefs) -> None:
        self.output = output
        self.law = TableLaw(output, beliefs)
        self._beliefs = beliefs

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Numbers of a file may fit no table of counts at all. That is damage, and not a mistake of who concludes."""
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                yield
        except (ArgumentError, ArithmeticError) as error:
            raise self.output.group.damaged(f"nothing follows from its numbers ({error})") from error

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Draws, float]:
        """Counts and shares, and the logarithm of the evidence."""
        with self._damage():
            return self.law.draw(draws, rng), self.law.log_evidence

    def estimate(self, prob: list[float], rng: np.random.Generator) -> Estimate:
        """Summaries of counts and shares."""
        with self._damage():
            return self.law.estimate(prob, rng)

    @property
    def conditions(self) -> str:
        """What the conclusion rests on, in a sentence."""
        prior = "the model's prior" if self._beliefs.prior is None else "a prior of your own"
        parts = [f"{prior} of the shares"]
        if self.output.n_records is not None:
            parts.append(f"{self.output.n_records} records, which is public")
        elif isinstance(self._beliefs.n_prior, int):
            parts.append(f"0 to {self._beliefs.n_prior} records, all as likely as one another")
        elif isinstance(self._beliefs.n_prior, range):
            least, most = self._beliefs.n_prior[0], self._beliefs.n_prior[-1]
            parts.append(f"{least} to {most} records, all as likely as one another")
        else:
            parts.append("your prior of the number of records")
        if self.output.prior.ndim > 1 and self.output.prior.size > self.output.prior.shape[-1]:
            flat = "all divisions of the records among rows as likely as one another"
            parts.append(flat if self._beliefs.row_prior is None else "your prior of the division among rows")
        if self.output.least:
            parts.append(f"at least {self.output.least} records in every cell, as was promised")
        return "; ".join(parts)


def conclusions(
    release: xr.DataTree,
    prior: PerTable[ArrayLike],
    n_prior: PerTable[int | ArrayLike],
    row_prior: PerTable[ArrayLike],
) -> dict[str, Conclusion]:
    """The laws of all tables of a release.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If a prior does not fit.
    """
    stored = read(release)
    wrong = [check for check in verified(stored, release).checks if not check.passed and check.name != "randomness"]
    if wrong:
        raise ReleaseError(
            f"The release contradicts itself, so nothing is concluded from it. {wrong[0].sentence} See dirdp.verify."
        )
    found = outputs(stored, release)
    names = tuple(found)
    priors, n_priors, row_priors = (
        _by_table(given, names, called)
        for given, called in ((prior, "prior"), (n_prior, "n_prior"), (row_prior, "row_prior"))
    )
    return {
        name: Conclusion(
            output, Beliefs(prior=priors[name], n_prior=_or(n_priors[name], output), row_prior=row_priors[name])
        )
        for name, output in found.items()
    }


def _or(n_prior: Any, output: Output) -> Any:
    """The prior of a private number of records, or that of the release's own draws."""
    return output.possible_records if n_prior is None else n_prior


def _by_table(given: Any, names: tuple[str, ...], called: str) -> dict[str, Any]:
    """One value for each table: of a mapping, or the same for all."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    if unknown := [name for name in given if name not in names]:
        raise ArgumentError(f"{called} names {unknown[0]!r}, and the release has the tables {', '.join(names)}.")
    return {name: given.get(name) for name in names}
