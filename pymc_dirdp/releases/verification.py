"""Whether the guarantee that a release states follows from its text. Anybody can check it, without the data."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, final, override

import numpy as np
import xarray as xr

from pymc_dirdp.display import Labelled, Sections
from pymc_dirdp.errors import ArgumentError, ReleaseError, shown
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.deferred import is_untouched
from pymc_dirdp.releases.opened import Opened, computable, opened
from pymc_dirdp.releases.view import LEFT_OUT, view
from pymc_dirdp.releases.wording import taken_for_granted
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import library_version

# Other versions of SciPy round differently; this is for the comparison of a view alone.
_ROUNDING = 1e-7


@final
@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : str
        Its name, in a word or two.
    passed : bool
    sentence : str
        The result in words.
    """

    name: str
    passed: bool
    sentence: str


@final
@dataclass(frozen=True, repr=False)
class Verification(Labelled):
    """The results of all checks of a release. `print` it, let a notebook show it, or use it as a truth value.

    Attributes
    ----------
    stated : Guarantee
        What the release says that it keeps.
    recomputed : Guarantee or None
        The least guarantee that the numbers keep, of the stated kind, at the same delta, order or omega, rounded up.
        None if they keep none of this kind, if nothing can be computed from them, if the release was drawn with a seed,
        or if the file holds more than a release does.
    checks : tuple of Check
        In the order in which they were made.
    believed : tuple of str
        What no file can show, so that it has to be believed or asked for.
    is_full : bool
        Whether it prints what every check found, and what has to be believed.
    mechanisms : dict of str to Mechanism
        The mechanism of each table, by the name of the table, as the file states it: what :func:`pymc_dirdp.audit`
        attacks.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> found = dirdp.verify(dirdp.sample(dirdp.ApproxDP(epsilon=0.6, delta=1e-6), model))
    >>> print(found.stated)
    (0.6, 1e-06)-differential privacy
    """

    stated: Guarantee
    recomputed: Guarantee | None
    checks: tuple[Check, ...]
    believed: tuple[str, ...]
    is_full: bool = False
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict, hash=False)

    @property
    def full(self) -> "Verification":
        """The same for an auditor: it prints what every check found, and what no file can show."""
        return replace(self, is_full=True)

    @property
    def follows(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def __bool__(self) -> bool:
        return self.follows

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        if self.follows:
            return f"The stated guarantee, {self.stated}, follows from the numbers of this release."
        failed = next(check for check in self.checks if not check.passed)
        if failed.name == "randomness":
            return f"Not private: {failed.sentence}"
        if failed.name == "guarantee":
            return f"The stated guarantee, {self.stated}, does not follow from the numbers of this release."
        return f"The stated guarantee, {self.stated}, is not that of what is here. {failed.sentence}"

    @property
    def alternative(self) -> str:
        """What follows instead, in one sentence."""
        if self.recomputed is None:
            return "No guarantee of the stated kind follows."
        return f"The mechanism, the groups and the draws guarantee {self.recomputed}."

    @property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """The checks that failed, by name and sentence, and what follows instead; empty if all passed."""
        failed = tuple((check.name, check.sentence) for check in self.checks if not check.passed)
        return (*failed, ("instead", self.alternative)) if failed else ()

    @override
    def _parts(self) -> tuple[str, Sections]:
        shown_checks = self.checks if self.is_full else [check for check in self.checks if not check.passed]
        lines = [(check.name, f"{'ok' if check.passed else 'FAILED'}: {check.sentence}") for check in shown_checks]
        lines += self.failures[-1:]
        if self.is_full:
            return self.headline, [("", [*lines, *(("to believe", sentence) for sentence in self.believed)])]
        passed = ", ".join(check.name for check in self.checks if check.passed)
        more = "no file shows that its numbers came from data; what was found: print(dirdp.verify(release).full)"
        return self.headline, [("", [*lines, ("ok", passed), ("more", more)])]


@user_facing
def verify(release: xr.DataTree | str | PathLike[str]) -> Verification:
    """Whether the guarantee that a release states follows from its own numbers. It needs no data and no model.

    The plan is rebuilt from the facts of the release's text, and the stated guarantee is decided on its exact curves
    without tolerance. The output is compared with the mechanisms, and the groups of the tree with what follows
    from the text. There is nothing else to check, because the text holds nothing else.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, or from a file that anybody may have written.

    Returns
    -------
    verification : Verification
        True as a truth value exactly if the guarantee follows. A false statement is no error: the checks say which one
        it is, and what would follow instead.

    Raises
    ------
    ReleaseError
        If it is no release, or is damaged: something is missing, is of another kind than belongs there, or does not
        fit the rest.

    Notes
    -----
    A file cannot show how it was made. That the draw has the distribution that is stated, and that nobody looked at the
    data to choose the prior, has to be believed: `believed` lists these things.

    References
    ----------
    Theory, section 2 to 7, for the curves.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> bool(dirdp.verify(dirdp.sample(dirdp.ApproxDP(epsilon=0.5, delta=1e-6), model)))
    True
    """
    return verified(opened(release), None if isinstance(release, str | PathLike) else release)


def verified(stored: Opened, tree: xr.DataTree | None = None) -> Verification:
    """Verify a release that was opened, with the tree that it came in; or a plan, which has neither."""
    keeps, recomputed = _recomputed(stored.plan.guarantee, stored.curves)
    checks = [_guarantee(stored.plan.guarantee, keeps, recomputed)]
    if stored.release is not None:
        seeded = "it was drawn with a seed, so anyone who knows or guesses the seed computes the draw again."
        checks = [
            _check("randomness", seeded if stored.reproducible else None, "No seed was used."),
            *checks,
            _check("output", stored.release.problem, "Each output can come from its mechanism."),
            *([] if tree is None else [_same_view(stored, tree)]),
            _library(stored.plan.library_version),
        ]
    mechanisms = {part.table.name: part.mechanism for part in stored.plan.parts}
    recomputed = _believable(recomputed, checks)
    return Verification(
        stored.plan.guarantee, recomputed, tuple(checks), tuple(_believed(stored)), mechanisms=mechanisms
    )


def _recomputed(stated: Guarantee, curves: PrivacyCurves) -> tuple[bool, Guarantee | None]:
    """Whether curves keep what is stated, and the least guarantee of its kind that they keep."""
    # Numbers that are far too large keep nothing that can be computed.
    with suppress(ReleaseError), computable():
        return curves.satisfies(stated), tightest_guarantee(stated, curves)
    return False, None


def _guarantee(stated: Guarantee, keeps: bool, recomputed: Guarantee | None) -> Check:
    if keeps:
        return Check("guarantee", True, f"{stated} holds on the exact curves of the plan.")
    instead = "no other of its kind could be computed that does" if recomputed is None else f"{recomputed} does"
    return Check("guarantee", False, f"{stated} does not hold; {instead}.")


def _believable(recomputed: Guarantee | None, checks: list[Check]) -> Guarantee | None:
    """What is guaranteed; nothing by a release that anybody can compute again, or a tree that says other things."""
    return recomputed if all(check.passed or check.name == "guarantee" for check in checks) else None


def tightest_guarantee(stated: Guarantee, curves: PrivacyCurves) -> Guarantee | None:
    """The least guarantee of the stated kind that the curves keep, rounded up to a few digits."""
    with suppress(ArgumentError):
        return stated.with_budget(up(stated.least_budget(curves), 4))
    return None  # Nothing can be guaranteed at an infinite budget, and for most kinds nothing at 0.


def _check(name: str, problem: str | None, otherwise: str) -> Check:
    return Check(name, problem is None, otherwise if problem is None else problem)


def _library(made: str) -> Check:
    return Check("library", True, f"Made by version {shown(made)}, checked by version {library_version()!r}.")


def _same_view(stored: Opened, tree: xr.DataTree) -> Check:
    """Whether a tree is the one that follows from its text, but for what was computed of its draws."""
    own = view(stored)
    beside = ", ".join(map(shown, _computed_beside(tree, own)))
    but = f", but for {beside}, which the text does not hold" if beside else ""
    text = "" if stored.release is None else stored.release.text
    return _check("view", _other_view(own, tree, text), f"The tree is the one that follows from its text{but}.")


def _other_view(own: xr.DataTree, tree: xr.DataTree, text: str) -> str | None:
    """What of a tree does not follow from its text, in a sentence; None if all of it does."""
    ours, theirs = ({node.path: node.to_dataset() for node in one.subtree} for one in (own, tree))
    if "/posterior" in ours and "/posterior" in theirs:
        theirs["/posterior"] = _without(theirs["/posterior"], _computed_beside(tree, own))
    for path in [*ours, *theirs]:
        if path not in theirs:
            return f"The group {shown(path)} is missing. Open the file again."
        if path not in ours or not _alike(ours[path], theirs[path], text):
            return (
                f"The group {shown(path)} of the tree does not follow from its text. All functions read the text; "
                "print(dirdp.report(release)) shows what it says."
            )
    return None


def _computed_beside(tree: xr.DataTree, own: xr.DataTree) -> list[str]:
    """What stands beside the draws of the text, such as Deterministics."""
    if "posterior" not in tree.children:
        return []
    return [str(name) for name in tree["posterior"].to_dataset().variables if name not in own["posterior"].variables]


def _without(draws: xr.Dataset, beside: list[str]) -> xr.Dataset:
    own = draws.drop_vars(beside)
    own.attrs = {name: value for name, value in draws.attrs.items() if name != LEFT_OUT}
    return own


def _alike(one: xr.Dataset, other: xr.Dataset, text: str) -> bool:
    """Whether two groups say the same, but for the last digits of what was computed."""
    if set(one.variables) != set(other.variables) or set(one.coords) != set(other.coords):
        return False
    if not _same_attributes(one.attrs, other.attrs):
        return False
    for name, variable in one.variables.items():
        found = other.variables[name]
        if variable.dims != found.dims or variable.shape != found.shape or not _same_attributes({}, found.attrs):
            return False
        if is_untouched(found, text):
            continue
        mine, its = variable.values, found.values
        numbers = mine.dtype.kind in "fiu" and its.dtype.kind in "fiu"
        if not (np.allclose(mine, its, rtol=_ROUNDING, atol=0, equal_nan=True) if numbers else np.all(mine == its)):
            return False
    return True


def _same_attributes(mine: dict[Any, Any], its: dict[Any, Any]) -> bool:
    if set(mine) != set(its):
        return False
    return all(
        math.isclose(value, its[name], rel_tol=_ROUNDING) or value == its[name]
        if isinstance(value, int | float) and isinstance(its[name], int | float | np.number)
        else type(its[name]) is type(value) and value == its[name]
        for name, value in mine.items()
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _believed(stored: Opened) -> Iterator[str]:
    samplers = [] if stored.release is None else [stored.release.sampler]
    yield f"Who is protected: {stored.plan.protected[:500]}"
    yield f"The draws have the distribution that the text states; the sampler is {', '.join(map(shown, samplers))}."
    if "fast" in samplers:
        yield "The guarantee is proved for the ideal distribution, from which draws in floating point differ."
    for choice in stored.plan.after:
        yield f"The {choice.called} came from the mechanism that the file states, once."
    yield "The prior, the categories and all options were chosen without the data."
    yield f"Each person holds {_count(stored.plan.contribution, 'record')} of a table at most."
    for sentence in taken_for_granted(stored.plan):
        yield f"{sentence[0].upper()}{sentence[1:]}."
    yield "Nothing else was published about the same people; the losses of several releases add up."
