"""Privacy statements to print under published tables, with their expected accuracy, from public numbers only.

A statement has a paragraph, a table, and an entry for a register of deployments.
"""

import json
import re
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, final, override, runtime_checkable

import xarray as xr

from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.display import Facts, clip, escape_html, escape_invisible, label_rows, scroll_box, select_lines
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.odds import randomness
from pymc_dirdp.releases.claims import Claiming
from pymc_dirdp.releases.facts import ERRORS, deployment_of, lines_of
from pymc_dirdp.releases.opened import LoadedRelease, content_of, open_release
from pymc_dirdp.releases.verification import Verification, verify, verify_loaded
from pymc_dirdp.signatures import user_facing

type Lines = tuple[tuple[str, str], ...]


@runtime_checkable
class Stating(Claiming, Protocol):
    """An object with its own statement, such as a bandit or a release of pairs."""

    def _statement(self) -> tuple[Deployment, Facts]: ...


@final
@dataclass(frozen=True, repr=False)
class Statement:
    """The privacy statement of a published table. `print` shows Markdown, a notebook shows HTML.

    Attributes
    ----------
    title : str
    paragraph : str
        The guarantee in plain words, or the reason why there is none.
    lines : tuple of (str, str)
        The rows of the table: a label and a text.
    entry : dict
        A machine-readable entry, with the columns of the public registry of deployments of differential privacy.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> found = dirdp.statement(dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric"))
    >>> found.title
    'Privacy'
    """

    title: str
    paragraph: str
    lines: Lines
    entry: dict[str, Any]

    @override
    def __repr__(self) -> str:
        return f"<Statement: {clip(self.paragraph, 80)}; print() shows it>"

    @override
    def __str__(self) -> str:
        rows = (f"| {_markdown(label)} | {_markdown(text)} |" for label, text in self.lines)
        title, paragraph = _markdown(self.title), _markdown(self.paragraph)
        return "\n".join([f"**{title}.** {paragraph}", "", "| | |", "|:--|:--|", *rows])

    def _repr_html_(self) -> str:
        paragraph = f"<p><strong>{escape_html(self.title)}.</strong> {escape_html(self.paragraph)}</p>"
        return f"<div style='overflow-wrap:anywhere'>{paragraph}{scroll_box(label_rows(self.lines))}</div>"

    def to_json(self) -> str:
        r"""The entry as JSON. Its keys are the columns of https://registry.opendp.org/deployments-registry.

        Examples
        --------
        >>> Statement("Private", "A guarantee.", (), {"product": "p", "model": "Central"}).to_json()
        '{\n  "product": "p",\n  "model": "Central"\n}'
        """
        return json.dumps(self.entry, indent=2, ensure_ascii=False, allow_nan=False)


@user_facing
def statement(release: xr.DataTree | str | PathLike[str] | Ledger | Stating) -> Statement:
    """The privacy statement to print under a published table, from its file alone, or about a bandit or a ledger.

    A release is verified first, see :func:`pymc_dirdp.verify`.

    Parameters
    ----------
    release : xarray.DataTree, path-like, ThompsonSampler, Transcript or Ledger
        From :func:`pymc_dirdp.sample`, or from a file of any origin. Pass a bandit or the file of its transcript for
        the statement of its run. Pass the ledger of several releases about the same people, such as four quarters, for
        the guarantee of all of them together.

    Returns
    -------
    statement : Statement
        `print(statement(release))` shows Markdown with one paragraph and one table, a notebook shows HTML, and
        `to_json()` is an entry for a register. Names from the file are escaped in each. The statement of a release
        that was drawn with a seed says that it is not private.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or does not satisfy its stated guarantee.
    ArgumentError
        If a ledger has no release yet, or it is a list of releases.

    Notes
    -----
    The odds are those of the true answer of one person against any other answer: prior odds times the likelihood ratio
    of what was published. From the curve, the logarithm of that ratio is above `e - log(1 - b / a)` with a probability
    of at most `a`, where `b = delta(e)` is below `a`, because the hockey-stick divergence at `e` is at least that
    probability times `b / a`.

    A ledger states :attr:`Ledger.guarantee`, and its odds are the worst that this guarantee allows. If the guarantee
    has a delta, they are those of `a = 10 delta`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> print(dirdp.statement(release).paragraph[:63])
    p was published with differential privacy. Whatever anyone beli
    """
    if isinstance(release, Ledger):
        return _of_ledger(release)
    if isinstance(release, list | tuple):
        raise ArgumentError(
            "Pass the ledger that the releases were charged to: dirdp.statement(ledger) has their joint guarantee. Or "
            "pass one release at a time."
        )
    source = content_of(release)
    if isinstance(source, Stating):
        return _of_stating(source, verify(release))
    stored = source if isinstance(source, LoadedRelease) else open_release(source)
    verification = verify_loaded(stored, release if isinstance(release, xr.DataTree) else None)
    _refuse_false(verification)
    lines = select_lines(lines_of(stored, verification.failures), ("Guarantee", ERRORS, "Use"), 1)
    numbers = randomness(table.mechanism.log_no_noise for table in stored.tables.values())
    verb = "was" if len(stored.tables) == 1 else "were"
    return _statement_of(verification, deployment_of(stored), lines, verb, numbers)


def _refuse_false(verification: Verification) -> None:
    """Refuse a release that fails verification for any reason but a seed, which the statement is about."""
    wrong = [check for check in verification.checks if not check.passed and check.name != "randomness"]
    if wrong:
        raise ReleaseError(
            f"There is no statement for a release that does not verify ({wrong[0].name}): {wrong[0].sentence} "
            "print(dirdp.verify(release)) says more. Ask its publisher for the file again."
        )


def _of_stating(source: Stating, verification: Verification) -> Statement:
    """The statement of pairs of columns, or of a bandit."""
    _refuse_false(verification)
    stated, facts = source._statement()
    # A seed leaves no guarantee to state.
    headings = ("Guarantee",) * verification.follows + ("Noise", "Rules", "Use")
    lines = select_lines(facts, headings, 1)
    return _statement_of(verification, stated, lines, "were", "The numbers are random on purpose.")


def _statement_of(verification: Verification, stated: Deployment, lines: Lines, verb: str, numbers: str) -> Statement:
    """The statement of a release that verifies, or that was drawn with a seed."""
    if not verification.follows:
        none: dict[str, Any] = {"flavor": "none: drawn with a seed", "epsilon": None, "delta": None, "parameters": {}}
        text = (
            f"{stated.product}: drawn with a seed, so anyone who knows or guesses the seed computes the draw again and "
            "learns about the data. No guarantee of privacy is made. Do not publish it."
        )
        return Statement("NOT PRIVATE", text, (("privacy", "none"), *lines), stated.row | none)
    return Statement("Privacy", stated.odds.paragraph(f"{stated.product} {verb} published", numbers), lines, stated.row)


def _of_ledger(ledger: Ledger) -> Statement:
    stated, facts = ledger._statement()
    if not stated.product:
        raise ArgumentError("This ledger holds no release yet: sample(..., ledger=ledger) records a release.")
    verb = "was" if stated.description.startswith("1 release ") else "were"
    published = f"{stated.description} ({stated.product}) {verb} published"
    text = stated.odds.paragraph(published, "The statement of each of them says how its numbers were drawn.")
    return Statement("Privacy", text, select_lines(facts, ("Guarantee", "Entries", "Notes"), 1), stated.row)


def _markdown(text: str) -> str:
    """A text with escapes, so that Markdown shows it unchanged, even in a cell of a table."""
    # Characters with a meaning in Markdown. An underscore within a word has none. Links and mentions follow below.
    special = re.compile(r"([\\`*{}\[\]#!|~$]|(?<![^\W_])_|_(?![^\W_]))")
    safe = special.sub(r"\\\1", escape_invisible(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    link = re.compile(r"(?<=[a-z])(:)(?=/)|(?<=www)(\.)|(@)", re.IGNORECASE)
    return link.sub(lambda match: f"&#{ord(match.group(0))};", safe)
