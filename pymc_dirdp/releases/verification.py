"""Verify that the stated guarantee of a release follows from its text. Anybody can do this without the data."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, final, override

import numpy as np
import xarray as xr

from pymc_dirdp.accounting.facts import assumptions_of
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.display import LabelledResult, Sections
from pymc_dirdp.errors import ArgumentError, LedgerError, ReleaseError, quote
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.claims import Check, Claim, Claiming
from pymc_dirdp.releases.deferred import is_untouched
from pymc_dirdp.releases.opened import LoadedRelease, computable, content_of, open_release
from pymc_dirdp.releases.pairs import PairsRelease
from pymc_dirdp.releases.pairs_view import seed_of, tree_of_pairs
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.view import LEFT_OUT, view
from pymc_dirdp.releases.wording import NOTHING_ELSE, plan_assumptions
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import library_version

# The tolerance for comparing trees, because other versions of SciPy round differently.
_ROUNDING = 1e-7


@final
@dataclass(frozen=True, repr=False)
class Verification(LabelledResult):
    """The results of all checks of a release. `print` it, display it in a notebook, or use it as a truth value.

    Attributes
    ----------
    stated : Guarantee
        The stated guarantee.
    recomputed : Guarantee or None
        The tightest guarantee that the numbers satisfy, of the stated kind, at the same delta, order or omega, rounded
        up. None if they satisfy no such guarantee, if it cannot be computed, if the release was drawn with a seed, or
        if the tree does not follow from its text.
    checks : tuple of Check
        The results in the order of the checks.
    assumptions : tuple of str
        The assumptions that no file can show.
    is_full : bool
        Whether `print` shows the result of every check, and the assumptions.
    mechanisms : dict of str to Mechanism
        The stated mechanism of each table, by its name, for :func:`pymc_dirdp.audit`.
    what : str
        The kind of object: a release, a plan, a ledger or a bandit.

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
    assumptions: tuple[str, ...]
    is_full: bool = False
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict, hash=False)
    what: str = "release"

    @property
    def full(self) -> "Verification":
        """The same for an auditor. It prints the result of every check, and the assumptions that no file can show."""
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
            return f"The stated guarantee, {self.stated}, follows from the numbers of this {self.what}."
        failed = next(check for check in self.checks if not check.passed)
        if failed.name == "randomness":
            return f"Not private: {failed.sentence}"
        if failed.name == "guarantee":
            return f"The stated guarantee, {self.stated}, does not follow from the numbers of this {self.what}."
        return f"The stated guarantee, {self.stated}, is not that of what is here. {failed.sentence}"

    @property
    def alternative(self) -> str:
        """The guarantee that follows instead, in one sentence."""
        if self.recomputed is None:
            return "No guarantee of the stated kind follows."
        return f"The mechanism, the groups and the draws guarantee {self.recomputed}."

    @property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """The failed checks, by name and sentence, and the guarantee that follows instead. Empty if all passed."""
        failed = tuple((check.name, check.sentence) for check in self.checks if not check.passed)
        return (*failed, ("instead", self.alternative)) if failed else ()

    @override
    def _parts(self) -> tuple[str, Sections]:
        shown_checks = self.checks if self.is_full else [check for check in self.checks if not check.passed]
        lines = [(check.name, f"{'ok' if check.passed else 'FAILED'}: {check.sentence}") for check in shown_checks]
        lines += self.failures[-1:]
        if self.is_full:
            sentences = (f"{text[0].upper()}{text[1:]}." for text in self.assumptions)
            return self.headline, [("", [*lines, *(("assumed", sentence) for sentence in sentences)])]
        passed = ", ".join(check.name for check in self.checks if check.passed)
        hint = f"no file shows that its numbers came from data; all results: print(dirdp.verify({self.what}).full)"
        return self.headline, [("", [*lines, ("ok", passed), ("more", hint)])]


@user_facing
def verify(
    release: xr.DataTree | str | PathLike[str] | Plan | Ledger | Claiming, *, head: str | None = None
) -> Verification:
    """Verify that a stated guarantee follows from the numbers of a release. This needs no data and no model.

    The plan is rebuilt from the text of the release, and the stated guarantee is checked on its exact curves without
    tolerance. The output is compared with the mechanisms, and the groups of the tree with the text. There is nothing
    else to check, because the text contains nothing else.

    Parameters
    ----------
    release : xarray.DataTree, path-like, Plan, Ledger, ThompsonSampler or Transcript
        From :func:`pymc_dirdp.sample`, or from a file of any origin, or the path of a file. The guarantee of a plan or
        a bandit is also checked on exact curves. All entries of a ledger are compared with their hashes, and composed.
    head : str, optional
        For a ledger: an earlier :attr:`Ledger.head`, which must be in its history.

    Returns
    -------
    verification : Verification
        True as a truth value exactly if the guarantee follows. If it does not follow, no error is raised. The checks
        then say what failed, and which guarantee follows instead.

    Raises
    ------
    ReleaseError
        If it is none of these objects, or is damaged: a part is missing, has the wrong type or contradicts the rest.
    ArgumentError
        If `head` is not a head, or the object is not a ledger.

    Notes
    -----
    A file cannot show how it was created. For example, you have to trust that the draw has the stated distribution, and
    that nobody looked at the data to choose the prior. `assumptions` lists these.

    References
    ----------
    Theory, sections 2 to 7, for the curves.

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
    if isinstance(release, Ledger):
        return verify_ledger(release, head)
    if head is not None:
        raise ArgumentError("head is that of a ledger: dirdp.verify(ledger, head=...). Leave it out.")
    source = content_of(release)
    tree = release if isinstance(release, xr.DataTree) else None
    if isinstance(source, Claiming):
        return verify_claim(source._claim(), *_same_pairs(source, tree))
    if isinstance(source, Plan):
        return verify_loaded(LoadedRelease(source))
    return verify_loaded(source if isinstance(source, LoadedRelease) else open_release(source), tree)


def verify_loaded(stored: LoadedRelease, tree: xr.DataTree | None = None) -> Verification:
    """Verify a loaded release and its tree, or a plan."""
    checks: tuple[Check, ...] = ()
    if stored.release is not None:
        output = _check("output", stored.release.problem, "Each output can come from its mechanism.")
        checks = (output, *([] if tree is None else [_same_view(view(stored), tree, stored.release.text)]))
    plan = stored.plan
    people = f"who is protected: {plan.protected[:500]}".removesuffix(".")
    claim = Claim(
        "plan" if stored.release is None else "release",
        plan.guarantee,
        stored.curves,
        (people, *plan_assumptions(plan, released=stored.release is not None), NOTHING_ELSE),
        plan.library_version,
        checks,
        stored.reproducible,
        {part.table.name: part.mechanism for part in plan.parts},
    )
    return verify_claim(claim)


def verify_ledger(ledger: Ledger, head: str | None = None) -> Verification:
    """Verify a ledger: the hash of every entry, the limit on all of them, and an earlier head."""
    stated, problem = ledger.limit, None
    assumptions: tuple[str, ...] = ()
    try:
        ledger._verified(head)
        stated, assumptions = ledger.guarantee, assumptions_of(ledger.entries())
    except LedgerError as error:
        problem = str(error)
    passed = "Every entry has its hash, and together they satisfy the limit"
    passed += "." if head is None else "; the ledger has passed through the head."
    return Verification(
        stated,
        None if problem else stated,
        (_check("entries", problem, passed),),
        (*assumptions, NOTHING_ELSE, "a file was not written again whole"),
        what="ledger",
    )


def verify_claim(claim: Claim, *extra_checks: Check) -> Verification:
    """Verify the statements of an object."""
    holds, recomputed = _recomputed(claim.guarantee, claim.curves)
    seed_problem = "it was drawn with a seed, so anyone who knows or guesses the seed computes the draw again."
    versions = f"Made by version {quote(claim.library_version)}, checked by version {library_version()!r}."
    checks = [
        *(
            []
            if claim.what == "plan"
            else [_check("randomness", seed_problem if claim.is_seeded else None, "No seed was used.")]
        ),
        _guarantee(claim.guarantee, holds, recomputed),
        *claim.checks,
        *extra_checks,
        Check("library", True, versions),
    ]
    # There is no guarantee if anybody can compute the draw again, or if the tree does not follow from its text.
    if not all(check.passed or check.name == "guarantee" for check in checks):
        recomputed = None
    return Verification(
        claim.guarantee, recomputed, tuple(checks), claim.assumptions, mechanisms=claim.mechanisms, what=claim.what
    )


def _recomputed(stated: Guarantee, curves: PrivacyCurves) -> tuple[bool, Guarantee | None]:
    """Whether curves satisfy the stated guarantee, and the tightest guarantee of its kind that they satisfy."""
    # Curves cannot be computed from numbers that are far too large.
    with suppress(ReleaseError), computable():
        return curves.satisfies(stated), tightest_guarantee(stated, curves)
    return False, None


def _guarantee(stated: Guarantee, holds: bool, recomputed: Guarantee | None) -> Check:
    instead = "no other of its kind could be computed that does" if recomputed is None else f"{recomputed} does"
    problem = None if holds else f"{stated} does not hold; {instead}."
    return _check("guarantee", problem, f"{stated} holds on the exact curves.")


def tightest_guarantee(stated: Guarantee, curves: PrivacyCurves) -> Guarantee | None:
    """The tightest guarantee of the stated kind that the curves satisfy, rounded up to a few digits."""
    with suppress(ArgumentError):
        return stated.with_budget(up(stated.least_budget(curves), 4))
    return None  # An infinite budget is no guarantee, and most kinds have none with a budget of 0.


def _check(name: str, problem: str | None, otherwise: str) -> Check:
    return Check(name, problem is None, otherwise if problem is None else problem)


def _same_pairs(source: Claiming, tree: xr.DataTree | None) -> tuple[Check, ...]:
    """The check of a tree with pairs of columns."""
    if tree is None or not isinstance(source, PairsRelease):
        return ()
    return (_same_view(tree_of_pairs(source, seed_of(tree)), tree, source.text),)


def _same_view(view: xr.DataTree, tree: xr.DataTree, text: str) -> Check:
    """Whether a tree follows from its text, except for variables that were computed from its draws."""
    names = ", ".join(map(quote, _extra_names(tree, view)))
    exception = f", but for {names}, which the text does not hold" if names else ""
    return _check("view", _other_view(view, tree, text), f"The tree is the one that follows from its text{exception}.")


def _other_view(view: xr.DataTree, tree: xr.DataTree, text: str) -> str | None:
    """The part of a tree that does not follow from its text, in a sentence; None if all of it does."""
    groups, tree_groups = ({node.path: node.to_dataset() for node in root.subtree} for root in (view, tree))
    if "/posterior" in groups and "/posterior" in tree_groups:
        draws = tree_groups["/posterior"].drop_vars(_extra_names(tree, view))
        draws.attrs = {name: value for name, value in draws.attrs.items() if name != LEFT_OUT}
        tree_groups["/posterior"] = draws
    for path in [*groups, *tree_groups]:
        if path not in tree_groups:
            return f"The group {quote(path)} is missing. Open the file again."
        if path not in groups or not _is_close(groups[path], tree_groups[path], text):
            return (
                f"The group {quote(path)} of the tree does not follow from its text. All functions read the text; "
                "print(dirdp.report(release)) shows what it says."
            )
    return None


def _extra_names(tree: xr.DataTree, view: xr.DataTree) -> list[str]:
    """The variables in addition to the draws of the text, such as Deterministics."""
    if "posterior" not in tree.children:
        return []
    return [str(name) for name in tree["posterior"].to_dataset().variables if name not in view["posterior"].variables]


def _is_close(expected: xr.Dataset, other: xr.Dataset, text: str) -> bool:
    """Whether two groups are equal, except for the last digits of computed numbers."""
    if set(expected.variables) != set(other.variables) or set(expected.coords) != set(other.coords):
        return False
    if not _same_attributes(expected.attrs, other.attrs):
        return False
    for name, variable in expected.variables.items():
        actual = other.variables[name]
        if variable.dims != actual.dims or variable.shape != actual.shape or actual.attrs:
            return False
        if is_untouched(actual, text):
            continue
        a, b = variable.values, actual.values
        are_numbers = a.dtype.kind in "fiu" and b.dtype.kind in "fiu"
        if not (np.allclose(a, b, rtol=_ROUNDING, atol=0, equal_nan=True) if are_numbers else np.all(a == b)):
            return False
    return True


def _same_attributes(expected: dict[Any, Any], actual: dict[Any, Any]) -> bool:
    if set(expected) != set(actual):
        return False
    return all(
        math.isclose(value, actual[name], rel_tol=_ROUNDING) or value == actual[name]
        if isinstance(value, int | float) and isinstance(actual[name], int | float | np.number)
        else type(actual[name]) is type(value) and value == actual[name]
        for name, value in expected.items()
    )
