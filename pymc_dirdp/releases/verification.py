"""Whether the guarantee that a release states follows from its file. Anybody can check it, without the data."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import final, override

import xarray as xr

from pymc_dirdp.display import Labelled, Sections
from pymc_dirdp.errors import ArgumentError, ReleaseError, shown
from pymc_dirdp.models.protected import Reading
from pymc_dirdp.numerics.rounding import at_least_in_short as up
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.arithmetic import contradiction
from pymc_dirdp.releases.contents import beyond_a_release
from pymc_dirdp.releases.library import library_version
from pymc_dirdp.releases.totals import other_records, private_totals, wrong_totals
from pymc_dirdp.releases.wording import assumed, stored_reading
from pymc_dirdp.stored.curves import disagreements
from pymc_dirdp.stored.release import CURVES, Stored, read
from pymc_dirdp.stored.sparse import is_sparse, read_sparse
from pymc_dirdp.stored.untrusted import computable

__all__ = ["SEEDED", "Check", "Verification", "kept_of", "verified", "verify"]

# The digits of the guarantee that follows.
_DIGITS = 4
SEEDED = "it was drawn with a seed, so whoever knows or guesses the seed computes the draw again."


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
@dataclass(frozen=True)
class Verification(Labelled):
    """The results of all checks of a release. `print` it, let a notebook show it, or use it as a truth value.

    Attributes
    ----------
    stated : Guarantee
        What the release says that it keeps.
    kept : Guarantee or None
        The least guarantee that the numbers keep, of the stated kind, at the same delta, order or omega, rounded up.
        None if they keep none of this kind, if nothing can be computed from them, if the release was drawn with a seed,
        or if the file holds more than a release does.
    checks : tuple of Check
        In the order in which they were made.
    believed : tuple of str
        What no file can show, so that it has to be believed or asked for.

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
    kept: Guarantee | None
    checks: tuple[Check, ...]
    believed: tuple[str, ...]

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
            return f"The stated guarantee, {self.stated}, follows from the numbers of this file."
        failed = next(check for check in self.checks if not check.passed)
        if failed.name == "randomness":
            return f"Not private: {failed.sentence}"
        return f"The stated guarantee, {self.stated}, does not follow from the file's own numbers."

    @property
    def alternative(self) -> str:
        """What follows instead, in one sentence."""
        if self.kept is None:
            return "No guarantee of the stated kind follows from what the file says."
        return f"What the mechanism, the groups and the draws of the file keep is {self.kept}."

    @override
    def _told(self) -> tuple[str, Sections]:
        lines = [(check.name, f"{'ok' if check.passed else 'FAILED'}: {check.sentence}") for check in self.checks]
        if not self.follows:
            lines.append(("instead", self.alternative))
        return self.headline, [("", lines + [("to believe", sentence) for sentence in self.believed])]


def verify(release: xr.DataTree) -> Verification:
    """Whether the guarantee that a release states follows from its own numbers. It needs no data and no model.

    Every curve is computed again from `r`, `alpha`, the prior, the noise, what one person contributes, `min_count`, the
    public number of records, the adjacency, the groups of tables and the number of draws. The stated guarantee is
    decided on them without tolerance, and all else that the file says of its privacy is compared with them.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample` or :func:`pymc_dirdp.release_sparse`, or from a file that anybody may have
        written.

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
    A file cannot show how it was made. That the draw has the law that is stated, and that nobody looked at the data
    to choose the prior, has to be believed: `believed` lists these things.

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
    if is_sparse(release):
        # Here, because that file needs this one.
        from pymc_dirdp.releases.sparse_verification import verified_sparse

        return verified_sparse(read_sparse(release))
    return verified(read(release), release)


def verified(stored: Stored, release: xr.DataTree, *, drawn: bool = True) -> Verification:
    """Verify facts that were read already; `drawn=False` for a plan, which has no draws yet."""
    keeps, kept, wrong = False, None, tuple(CURVES)
    # Numbers that are far too large keep nothing that can be computed; that is no damage of the file.
    with suppress(ReleaseError), computable():
        keeps, kept = stored.curves.satisfies(stored.guarantee), kept_of(stored.guarantee, stored.curves)
        wrong = disagreements(stored)
    people = stored_reading(stored)
    other_curves = f"The stored curves {', '.join(wrong)} are not those of the file's own numbers."
    checks = [
        _check("guarantee", _unkept(stored, keeps, kept), f"{stored.guarantee} holds on the curve of the numbers."),
        _check("statement", _wrong_statement(stored, release), "The texts say what the fields of the guarantee say."),
        _check("curves", other_curves if wrong else None, "The stored curves were computed again and are the same."),
        _check(
            "adjacency",
            _wrong_adjacency(stored, release, people),
            f"The promise and all tables are for {stored.adjacency}.",
        ),
        _check("people", _wrong_people(stored, people), "The text on who is protected is that of the numbers."),
        _check(
            "assumptions",
            _wrong_assumptions(stored, assumed(people)),
            "The promise names what the tables assume of a person and of every cell.",
        ),
        _check(
            "totals",
            private_totals(stored, people)
            or other_records(stored, release, people)
            or (wrong_totals(stored, release) if drawn else None),
            "No number of records is published that is private, and all that rests on one agrees with it.",
        ),
        _check("contents", _additions(stored, release), "It holds what a release holds, and nothing else."),
    ]
    if drawn:
        checks = [
            _check("randomness", SEEDED if stored.reproducible else None, "Nothing says that a seed was used."),
            *checks,
            _check("sampler", contradiction(stored, release), "The draws can have been made as it says."),
            Check("tables", True, _counted(stored)),
            _library(release),
        ]
    if any(not check.passed and check.name in ("randomness", "contents") for check in checks):
        # What the mechanisms keep is no promise of a file that tells more than they do.
        kept = None
    return Verification(stored.guarantee, kept, tuple(checks), tuple(_believed(stored, release)))


def kept_of(stated: Guarantee, curves: PrivacyCurves) -> Guarantee | None:
    """The least guarantee of the stated kind that the curves keep, rounded up to a few digits."""
    with suppress(ArgumentError):
        return stated.with_budget(up(stated.least_budget(curves), _DIGITS))
    return None  # Nothing can be promised at an infinite budget, and for most kinds nothing at 0.


def _check(name: str, problem: str | None, otherwise: str) -> Check:
    return Check(name, problem is None, otherwise if problem is None else problem)


def _unkept(stored: Stored, keeps: bool, kept: Guarantee | None) -> str | None:
    if keeps:
        return None
    if kept is None:
        return f"{stored.guarantee} does not hold, and no other of its kind could be computed that does."
    return f"{stored.guarantee} does not hold; {kept} does."


def _wrong_statement(stored: Stored, release: xr.DataTree) -> str | None:
    for text in (stored.privacy.text("statement"), *_marked(release, "guarantee")):
        if text != str(stored.guarantee):
            return f"It says {shown(text)}, and its fields are those of {stored.guarantee}."
    return None


def _wrong_adjacency(stored: Stored, release: xr.DataTree, people: Reading) -> str | None:
    said = {table.group.text("adjacency") for table in stored.tables.values()} | set(_marked(release, "adjacency"))
    if said != {stored.adjacency}:
        return f"The promise is for {stored.adjacency}, and elsewhere it says otherwise."
    if stored.privacy.text("neighbours") != people.neighbours:
        return f"The text on neighbours is not what the numbers mean: {people.neighbours}."
    return None


def _wrong_assumptions(stored: Stored, needed: tuple[str, ...]) -> str | None:
    most = max(table.contribution.total(table.prior.shape) for table in stored.tables.values())
    if stored.contribution > most:
        return f"It speaks of {stored.contribution} records of a person; the tables allow for {most}."
    if stored.contribution > 1 and stored.privacy.text("unit") == "record":
        return "It speaks of single records, and of several records of a person."
    if stored.privacy.names("assumptions") != needed:
        return f"The promise needs these assumptions: {'; '.join(needed) or 'none'}."
    if {table.mechanism.min_count for table in stored.tables.values()} - {None, stored.min_count}:
        return "The tables need a min_count that the promise does not name."
    return None


def _wrong_people(stored: Stored, people: Reading) -> str | None:
    for name, meant in (("unit", people.label), ("protected", people.protected)):
        if stored.privacy.text(name) != meant:
            return f"The attribute {name!r} is not what the numbers mean: {meant}"
    adds = {table.contribution.fitted(table.prior.shape) for table in stored.tables.values()}
    records = people.stated.contribution or 1
    # Without a unit the records may lie anywhere along all row axes, if there are any.
    if not people.stated.unit and {(one.records, *set(one.axes)) for one in adds} - {(records,), (records, "any")}:
        return "The tables allow for other records of a person than the promise."
    return None


def _additions(stored: Stored, release: xr.DataTree) -> str | None:
    """A guarantee covers what a release holds by construction, and nothing that somebody added."""
    more = ", ".join(shown(path) for path in islice(beyond_a_release(stored, release), 5))
    return f"The file holds what no release has and no guarantee covers: {more}." if more else None


def _counted(stored: Stored) -> str:
    tables, groups = _count(len(stored.tables), "table"), _count(len(stored.groups), "group")
    return (
        f"{tables} in {groups} of people, {_count(stored.draws, 'draw')}: the loss of each counts, and all draws are "
        "probabilities."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _library(release: xr.DataTree) -> Check:
    attrs = release.attrs
    if attrs.get("inference_library") != "pymc_dirdp" or not isinstance(attrs.get("inference_library_version"), str):
        return Check("library", False, "It does not say which version of pymc_dirdp made it.")
    made = attrs["inference_library_version"]
    return Check("library", True, f"Made by version {shown(made)}, checked by version {library_version()!r}.")


def _marked(release: xr.DataTree, name: str) -> list[str]:
    """The attributes of this name of the whole tree and of its draws."""
    return [str(node.attrs[name]) for node in (release, release.children["posterior"]) if name in node.attrs]


def _believed(stored: Stored, release: xr.DataTree) -> Iterator[str]:
    samplers = sorted({table.group.text("sampler") for table in stored.tables.values()})
    yield f"Who is protected: {stored.privacy.text('protected')[:500]}"
    yield f"The draws have the law that the file states; the sampler is {', '.join(map(shown, samplers))}."
    if "fast" in samplers:
        yield "The guarantee is proved for the ideal law, from which draws in floating point differ."
    for choice in stored.choices:
        yield f"The {choice.called} came from the mechanism that the file states, once."
    if stored.is_estimate:
        yield "The shares are those that were fitted to the noisy counts; fit(release) computes them again."
    yield "The prior, the categories and all options were chosen without the data."
    yield f"Each person holds {_count(stored.contribution, 'record')} of a table at most."
    if len(stored.groups) > 1:
        yield "Different people feed the groups of tables."
    for name, table in stored.tables.items():
        if table.mechanism.assumed_records is not None:
            yield f"Every data set that could occur has {table.mechanism.assumed_records} records in {shown(name)}."
    if stored.min_count > 0:
        yield f"Every cell of every data set that could occur holds at least {up(stored.min_count):g} records."
    others = [str(name) for name in release["posterior"].to_dataset().data_vars if name not in stored.tables]
    if others:
        more = f" and {len(others) - 5} more" * (len(others) > 5)
        yield f"{', '.join(shown(name) for name in others[:5])}{more} among the draws follow from the tables alone."
    yield "Nothing else was published about the same people; the losses of several releases add up."
