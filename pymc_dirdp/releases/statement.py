"""What can be printed under a published table, and how accurate the table is expected to be, by public numbers only.

A statement is a paragraph, a table, and an entry for a register of deployments.
"""

import html
import json
import math
import re
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, final, override

import xarray as xr

from pymc_dirdp.accounting.ledger import Ledger, added_up
from pymc_dirdp.display import clipped, selected, visible
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.curves import Bounded, convert
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee
from pymc_dirdp.privacy.people import adjacency_named, number_of_records, protected_by, secret_of, who
from pymc_dirdp.releases.facts import ERRORS, lines_of, typical_errors, whom
from pymc_dirdp.releases.odds import DELTA, delta_of, odds, paragraph, randomness
from pymc_dirdp.releases.opened import Opened, opened
from pymc_dirdp.releases.verification import Verification, verified
from pymc_dirdp.releases.wording import NOT_PROTECTED
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import library_version

type Lines = tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True, repr=False)
class Statement:
    """What a published table should say of its privacy: `print` gives Markdown, a notebook shows HTML.

    Attributes
    ----------
    title : str
    paragraph : str
        The guarantee in plain words, or that there is none.
    lines : tuple of (str, str)
        The rows of the table: a label and a text.
    entry : dict
        The same for machines, with the columns of the public registry of deployments of differential privacy.

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
        return f"<Statement: {clipped(self.paragraph, 80)}; print() shows it>"

    @override
    def __str__(self) -> str:
        rows = (f"| {_markdown(label)} | {_markdown(text)} |" for label, text in self.lines)
        title, paragraph = _markdown(self.title), _markdown(self.paragraph)
        return "\n".join([f"**{title}.** {paragraph}", "", "| | |", "|:--|:--|", *rows])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left;vertical-align:top;min-width:9em'>{_html(label)}</th>"
            f"<td style='text-align:left;vertical-align:top;min-width:10em'>{_html(text)}</td></tr>"
            for label, text in self.lines
        )
        return (
            f"<div style='overflow-wrap:anywhere'><p><strong>{_html(self.title)}.</strong> {_html(self.paragraph)}</p>"
            f"<div style='overflow-x:auto'><table>{rows}</table></div></div>"
        )

    def to_json(self) -> str:
        r"""The entry as JSON, with keys after the columns of https://registry.opendp.org/deployments-registry.

        Examples
        --------
        >>> Statement("Private", "A guarantee.", (), {"product": "p", "model": "Central"}).to_json()
        '{\n  "product": "p",\n  "model": "Central"\n}'
        """
        return json.dumps(self.entry, indent=2, ensure_ascii=False, allow_nan=False)


@user_facing
def statement(release: xr.DataTree | str | PathLike[str] | Ledger) -> Statement:
    """What can be printed under a published table, from its file alone, or under all that a ledger holds.

    A release is verified first, see :func:`pymc_dirdp.verify`.

    Parameters
    ----------
    release : xarray.DataTree or Ledger
        From :func:`pymc_dirdp.sample`, or from a file that anybody may have written; or the ledger of several releases
        about the same people, such as four quarters, for what they guarantee together.

    Returns
    -------
    statement : Statement
        `print(statement(release))` is Markdown with one paragraph and one table, a notebook shows HTML, and `to_json()`
        is an entry for a register. Names from the file are escaped in each. A release that was drawn with a seed
        says that it is not private.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or does not keep what it states.
    ArgumentError
        If a ledger holds nothing yet, or it is a list of releases.

    Notes
    -----
    The odds are those of the truth against any other answer of one person: what somebody believes before, times the
    likelihood ratio of what was published. From the curve, the logarithm of that ratio is above `e - log(1 - b / a)`
    with a probability of at most `a`, where `b = delta(e)` is below `a`: the hockey-stick divergence at `e` is at least
    that probability times `b / a`.

    A ledger states :attr:`Ledger.guarantee`. It knows no curve, only an (epsilon, delta), so its odds are those of
    `a = 10 delta`.

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
        return of_ledger(release)
    if isinstance(release, list | tuple):
        raise ArgumentError(
            "Pass the ledger that the releases were charged to: dirdp.statement(ledger) says what they guarantee "
            "together. Or state each of them by itself."
        )
    stored = opened(release)
    verification = verified(stored, None if isinstance(release, str | PathLike) else release)
    # A seed is said loudly; anything else that is wrong leaves nothing to say.
    wrong = [check for check in verification.checks if not check.passed and check.name != "randomness"]
    if wrong:
        raise ReleaseError(
            f"There is no statement for a release that does not verify ({wrong[0].name}): {wrong[0].sentence} "
            "print(dirdp.verify(release)) says more. Ask its publisher for the file again."
        )
    facts, entry = lines_of(stored, verification.failures), _entry(stored, verification)
    lines = tuple(
        # Without its heading a line says that nothing is realised.
        (f"error {label}", f"{text}, expected without the data") if label in typical_errors(stored) else (label, text)
        for label, text in selected(facts, ("Guarantee", ERRORS, "Use"), 1)
    )
    if not verification.follows:
        return Statement("NOT PRIVATE", _seeded(stored), (("privacy", "none"), *lines), entry)
    published = f"{', '.join(stored.tables)} {'was' if len(stored.tables) == 1 else 'were'} published"
    numbers = randomness(table.mechanism for table in stored.tables.values())
    text = paragraph(published, whom(stored), stored.curves, delta_of(stored.plan.guarantee), numbers)
    return Statement("Privacy", text, lines, entry)


def of_ledger(ledger: Ledger, *, times: int = 10, most_named: int = 8) -> Statement:
    """The statement of a ledger.

    Its odds leave out a probability of `times` its delta, and it names `most_named` releases.
    """
    entries, guarantee, relation = ledger.entries(), ledger.guarantee, adjacency_named(ledger.adjacency)
    if not entries:
        raise ArgumentError("This ledger holds nothing yet: sample(..., ledger=ledger) records what is released.")
    unit, released = ledger.unit or "record", [entry for entry in entries if not entry.reserved]
    approximate = guarantee
    if guarantee.stated_delta is None:
        approximate = convert(guarantee, ApproxDP, delta=DELTA / times)
    epsilon, delta = approximate.budget, approximate.stated_delta or 0.0
    curves, probability = Bounded(epsilon, delta), min(1.0, up(times * delta))
    secret, public = secret_of(unit, relation), number_of_records(relation)
    # An entry may allow for more records of a person than the unit says, and its assumption has their number.
    single = all(entry.contribution in (None, 1) for entry in entries) or unit != "record"
    people = protected_by(unit) if single else f"every {who(unit)}"
    used = {entry.uses for entry in entries}
    open_ones = [entry.what for entry in entries if entry.reserved and entry.number not in used]
    listed = [f"{entry.what} ({entry.guarantee}, {entry.recorded[:10]})" for entry in released]
    more = [f"and {len(listed) - most_named} more"] if len(listed) > most_named + 1 else []
    how = added_up(ledger.composition_rule or "", guarantee)
    assumed = dict.fromkeys(sentence for entry in entries for sentence in entry.assumptions)
    lines = (
        ("guarantee", f"{guarantee}, of all of this together: {how}"),
        ("protected", f"{people}; adjacency {relation.name}: {public}"),
        ("odds of the truth", f"times {odds(curves, probability)}, about {secret}"),
        ("published", "; ".join([*(listed[:most_named] if more else listed), *more]) or "nothing yet"),
        *([("reserved", f"{'; '.join(dict.fromkeys(open_ones))}, which the guarantee covers")] if open_ones else []),
        ("not protected", "; ".join(NOT_PROTECTED)),
        ("assumed", "; ".join([*assumed, "each release was drawn as it says, once"])),
        ("to check it", "pymc_dirdp.Ledger(limit, path).verify(), and pymc_dirdp.verify(release) for each file"),
        ("software", f"pymc_dirdp {library_version()}"),
        ("head of the ledger", ledger.head),
    )
    names = ", ".join(dict.fromkeys(entry.what for entry in released))
    number = f"{len(released)} release{'s' * (len(released) != 1)}"
    loss = {"epsilon": epsilon, "delta": delta}
    entry = _columns(guarantee, names, f"{number} about the same people", unit, loss, public, how, ledger.head)
    numbers = "The statement of each of them says how its numbers were drawn."
    text = paragraph(f"{number} about the same people ({names}) were published", secret, curves, probability, numbers)
    return Statement("Privacy", text, lines, entry)


def _seeded(stored: Opened) -> str:
    return (
        f"{', '.join(stored.tables)} is reproducible: it was drawn with a seed, so anyone who knows or guesses the "
        "seed computes the draw again and learns about the data. No guarantee of privacy is made. Do not publish it."
    )


def _entry(stored: Opened, verification: Verification) -> dict[str, Any]:
    guarantee, names = stored.plan.guarantee, ", ".join(stored.tables)
    loss: dict[str, float | None] = {"epsilon": None, "delta": None}
    if verification.follows:
        delta = 0.0 if guarantee.is_pure else delta_of(guarantee)
        stated = guarantee.budget if guarantee.stated_delta is not None or guarantee.is_pure else None
        epsilon = stated if stated is not None else up(float(stored.curves.epsilon(delta)))
        loss = {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta}
    observed = dict.fromkeys(name for table in stored.tables.values() for name in table.observed_names)
    about, reading = f"Shares of the categories of {names}, from {', '.join(observed)}", stored.plan.reading
    how = "privacy curves of all tables and draws together, computed from the published numbers"
    found = _columns(guarantee, names, about, reading.label, loss, reading.neighbours, how, stored.plan.digest)
    none = {} if verification.follows else {"flavor": "none: drawn with a seed", "parameters": {}}
    return found | none | {"version": visible(stored.plan.library_version)}


def _columns(
    guarantee: Guarantee,
    names: str,
    about: str,
    unit: str,
    loss: dict[str, float | None] | dict[str, float],
    neighbours: str,
    how: str,
    digest: str,
) -> dict[str, Any]:
    """The columns of the registry of deployments, in its order."""
    return {
        "product": visible(names),
        "description": visible(about),
        "flavor": guarantee.flavour,
        "unit": visible(unit),
        **loss,
        "parameters": asdict(guarantee),
        "neighbours": visible(neighbours),
        "model": "Central",
        "accounting": how,
        "implementation": "pymc_dirdp",
        "version": library_version(),
        "digest": digest,
    }


def _markdown(text: str) -> str:
    """A text that Markdown shows as it is, also in a cell of a table."""
    # Signs that begin something in Markdown, or in a page made of it, as an underscore within a word does not; and what
    # browsers and GitHub turn into a link.
    marked = re.compile(r"([\\`*{}\[\]#!|~$]|(?<![^\W_])_|_(?![^\W_]))")
    safe = marked.sub(r"\\\1", visible(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    linked = re.compile(r"(?<=[a-z])(:)(?=/)|(?<=www)(\.)|(@)", re.IGNORECASE)
    return linked.sub(lambda found: f"&#{ord(found.group(0))};", safe)


def _html(text: str) -> str:
    return html.escape(visible(text))
