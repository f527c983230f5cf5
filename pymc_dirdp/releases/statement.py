"""What can be printed under a published table, and how accurate the table is expected to be, by public numbers only.

A statement is a paragraph, a table, and an entry for a register of deployments.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final, override

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.accounting.ledger import Ledger, added_up
from pymc_dirdp.arrays import Array
from pymc_dirdp.display import clipped, visible
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.mechanisms.outputs import Draws, Marginals
from pymc_dirdp.numerics.gamma import LARGEST_EXPONENT
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.planning.draw_error import draw_share_error, smallest_share
from pymc_dirdp.privacy.curves import Bounded, PrivacyCurves, convert
from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee
from pymc_dirdp.privacy.people import adjacency_named, who
from pymc_dirdp.releases.opened import Opened, ReleasedTable, opened
from pymc_dirdp.releases.verification import Verification, verified
from pymc_dirdp.releases.view import utility_of
from pymc_dirdp.releases.wording import secret_of, taken_for_granted
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import library_version

DELTA = 1e-6
"""A guarantee without a delta is also given as an epsilon at this one."""
_NOT_PROTECTED = (
    "what is true of the people as a whole, and what it suggests about each of them",
    "what is published elsewhere about the same people: the losses add up",
)

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
def statement(release: xr.DataTree | Ledger) -> Statement:
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
        return _of_ledger(release)
    if isinstance(release, list | tuple):
        raise ArgumentError(
            "Pass the ledger that the releases were charged to: dirdp.statement(ledger) says what they guarantee "
            "together. Or state each of them by itself."
        )
    stored = opened(release)
    verification = verified(stored, release)
    # A seed is said loudly; anything else that is wrong leaves nothing to say.
    wrong = [check for check in verification.checks if not check.passed and check.name != "randomness"]
    if wrong:
        raise ReleaseError(
            f"There is no statement for a release that does not verify ({wrong[0].name}): {wrong[0].sentence} "
            "print(dirdp.verify(release)) says more. Ask its publisher for the file again."
        )
    utility = utility_of(stored)
    entry = _entry(stored, verification)
    shared = (*_accuracy(stored, utility), *_use(stored, entry))
    if not verification.follows:
        return Statement("NOT PRIVATE", _seeded(stored), (("privacy", "none"), *shared), entry)
    published = f"{', '.join(stored.tables)} {'was' if len(stored.tables) == 1 else 'were'} published"
    paragraph = _paragraph(
        published, _secret(stored), stored.curves, _delta(stored.plan.guarantee), _randomness(stored)
    )
    return Statement("Privacy", paragraph, (*_guarantee(stored), *shared), entry)


def _of_ledger(ledger: Ledger, *, times: int = 10, most_named: int = 8) -> Statement:
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
    secret, alone = secret_of(unit, relation), ", of whom each record is another" * (unit == "record")
    public = f"the number of records is {'public' if relation.records_are_public else 'private'}"
    used = {entry.uses for entry in entries}
    open_ones = [entry.what for entry in entries if entry.reserved and entry.number not in used]
    listed = [f"{entry.what} ({entry.guarantee}, {entry.recorded[:10]})" for entry in released]
    more = [f"and {len(listed) - most_named} more"] if len(listed) > most_named + 1 else []
    how = added_up(ledger.composition_rule or "", guarantee)
    assumed = dict.fromkeys(sentence for entry in entries for sentence in entry.terms.assumptions)
    lines = (
        ("guarantee", f"{guarantee}, of all of this together: {how}"),
        ("protected", f"every {who(unit)}{alone}; adjacency {relation.name}: {public}"),
        ("odds of the truth", f"times {_odds(curves, probability)}, about {secret}"),
        ("published", "; ".join([*(listed[:most_named] if more else listed), *more]) or "nothing yet"),
        *([("reserved", f"{'; '.join(dict.fromkeys(open_ones))}, which the guarantee covers")] if open_ones else []),
        ("not protected", "; ".join(_NOT_PROTECTED)),
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
    paragraph = _paragraph(
        f"{number} about the same people ({names}) were published", secret, curves, probability, numbers
    )
    return Statement("Privacy", paragraph, lines, entry)


def odds_factor(curves: PrivacyCurves, delta: float) -> float:
    """The logarithm of the factor by which odds of the truth rise at most, but with probability `delta`; from above."""
    # Factors of delta at which the curve is asked for the best bound on odds.
    at = [
        (part * delta, float(curves.epsilon(part * delta)))
        for part in (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01)
        if part * delta > 0
    ]
    return min([curves.pure_epsilon, *(epsilon - math.log1p(-b / delta) for b, epsilon in at)])


def _delta(guarantee: Guarantee) -> float:
    return guarantee.stated_delta or DELTA


def _paragraph(published: str, secret: str, curves: PrivacyCurves, delta: float, numbers: str) -> str:
    return (
        f"{published} with differential privacy. Whatever anyone believes about {secret}, and whatever else they know, "
        f"this multiplies their odds for the truth by {_odds(curves, delta)}. An even chance before becomes "
        f"{_chance(odds_factor(curves, delta))} at most. {numbers}"
    )


def _chance(log_odds: float) -> str:
    """The probability that has these odds."""
    if log_odds > LARGEST_EXPONENT:
        return f"1 - exp(-{up(log_odds * (1 + 1e-12), 4):.4g})"
    return _probability(1 / (1 + math.exp(-log_odds)), 1 / (1 + math.exp(log_odds)))


def _probability(probability: float, rest: float) -> str:
    """A probability from above, given what is missing to 1: it is not rounded to 100 % where it is less."""
    # What is missing to 100 % is seen in three digits from here on.
    if rest >= 1e-3:
        return f"{up(100 * probability, 3):.3g} %"
    return f"1 - {down(rest, 2):.2g}"


def _randomness(stored: Opened, *, least: float = 1e-12) -> str:
    """What is random in a release, and how likely it is that its noisy counts are the counts.

    Noise with a probability below `least` is called none: the logarithm of its complement has no more digits.
    """
    logs = [log for table in stored.tables.values() if (log := table.mechanism.log_no_noise) is not None]
    if not logs or len(logs) < len(stored.tables):
        return "The numbers are random on purpose."
    if -math.fsum(map(math.expm1, logs)) < least:
        return f"All noise is 0 but for a probability below {least:g}: the numbers rest on the counts themselves."
    # All of them are the counts at most as often as those of one table.
    same = _probability(math.exp(min(logs)), -math.expm1(min(logs)))
    return (
        f"The numbers are noisy on purpose: all noise is 0, and they rest on the counts themselves, with a probability "
        f"of {same} at most."
    )


def _odds(curves: PrivacyCurves, delta: float) -> str:
    log_factor = odds_factor(curves, delta)
    short = log_factor < LARGEST_EXPONENT
    factor = f"{up(math.exp(log_factor), 3):.3g}" if short else f"exp({up(log_factor, 4):.4g})"
    bounded = curves.pure_epsilon <= log_factor
    return f"{factor} at most" + f", except with a probability of at most {up(delta):g}" * (not bounded)


def _secret(stored: Opened) -> str:
    reading = stored.plan.reading
    return secret_of(reading.label, reading.relation)


def odds_of_the_truth(stored: Opened, *, short: bool = False) -> str:
    """By how much the odds of the truth about one person rise at most, in words."""
    about = "" if short else f", about {_secret(stored)}"
    return f"times {_odds(stored.curves, _delta(stored.plan.guarantee))}{about}"


def _guarantee(stored: Opened) -> Lines:
    reading = stored.plan.reading
    return (
        ("guarantee", str(stored.plan.guarantee)),
        ("protected", reading.protected),
        ("odds of the truth", odds_of_the_truth(stored)),
        ("not protected", _unprotected(stored)),
        *((choice.called, choice.in_words) for choice in stored.plan.after),
        ("assumed", "; ".join([*taken_for_granted(stored.plan), "the release was drawn as it says, once"])),
    )


def _unprotected(stored: Opened) -> str:
    people, (*parts, last) = stored.plan.reading, _NOT_PROTECTED
    if people.sizes_are_public:
        parts.append("the number of records, and who took part")
    elif people.relation.records_are_public:
        parts.append("how many there are, and who took part")
    return "; ".join([*parts, "the categories and the prior, which were chosen without the data", last])


def _seeded(stored: Opened) -> str:
    return (
        f"{', '.join(stored.tables)} is reproducible: it was drawn with a seed, so anyone who knows or guesses the "
        "seed computes the draw again and learns about the data. No guarantee of privacy is made. Do not publish it."
    )


def _accuracy(stored: Opened, utility: xr.Dataset) -> Lines:
    errors = tuple(
        (f"error {label}", f"{text}, expected without the data") for label, text in typical_errors(stored, utility)
    )
    return errors


def _use(stored: Opened, entry: dict[str, Any]) -> Lines:
    drawn = bool(stored.plan.publishing(Draws))
    once = "; do not read a single draw as the truth, nor average over publications" * drawn
    distributions = dict.fromkeys(
        f"{type(table.mechanism).__name__}: {table.mechanism.in_short}" for table in stored.tables.values()
    )
    how = (
        "pymc_dirdp.estimate(release) gives shares with their errors, and pymc_dirdp.analyse(release) draws from the "
        f"posterior given what was published{once}"
    )
    if stored.plan.is_of_model:
        how = "pymc_dirdp.private_model(path, model) gives the model, with the likelihood of the noisy counts"
    elif stored.is_estimate:
        how = (
            "the shares are one estimate, fitted to the noisy counts of all tables; pymc_dirdp.estimate(release) gives "
            "intervals, and pymc_dirdp.analyse(release) draws from the posterior"
        )
    lines = [
        ("mechanism", "; ".join(distributions)),
        ("to compute with it", f"pymc_dirdp.load(path) opens the file; {how}"),
        ("to check it", "pymc_dirdp.verify(release), without the data"),
        ("software", f"{entry['implementation']} {entry['version']}"),
    ]
    if entry["digest"]:
        lines.append(("digest of the plan", entry["digest"]))
    return tuple(lines)


def _entry(stored: Opened, verification: Verification) -> dict[str, Any]:
    guarantee, names = stored.plan.guarantee, ", ".join(stored.tables)
    loss: dict[str, float | None] = {"epsilon": None, "delta": None}
    if verification.follows:
        delta = 0.0 if guarantee.is_pure else _delta(guarantee)
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


def typical_errors(stored: Opened, utility: xr.Dataset) -> Lines:
    """How far a share is typically off, in the estimate or the mean, and in a draw that is itself the release."""
    by_table = ", by table" * (len(stored.tables) > 1)
    if stored.is_estimate:
        # Tables of one category have no error, and large networks are not simulated.
        fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
        known = utility["share_error"].sel(table=fitted).values
        if not np.all(np.isfinite(known)):
            return ()
        return (("of the fit", f"a share is typically off by {in_range(known, 2)}{by_table}, in made-up networks"),)
    of_draws = _of_tables(
        stored,
        utility,
        lambda table, n: draw_share_error(
            table.mechanism, table.prior, round(n), public=table.is_public, totals=table.totals
        ),
    )
    errors: dict[str, Array] = {"of dirdp.estimate": utility["share_error"].values, "of the draw": of_draws}
    return tuple(
        (label, f"a share is typically off by {in_range(known, 2)}{by_table}")
        for label, values in errors.items()
        if (known := values[np.isfinite(values)]).size
    )


def expected_errors(stored: Opened, utility: xr.Dataset) -> Lines:
    """The typical errors first, and then the numbers for those who plan."""
    if "note" in utility.attrs:
        return (("typical error", str(utility.attrs["note"])),)
    return (*typical_errors(stored, utility), *_details(stored, utility), *_grid(utility))


def _details(stored: Opened, utility: xr.Dataset) -> Iterator[tuple[str, str]]:
    n, effective = utility["n_records"].values, utility["effective_records"].values
    by_table = ", by table" * (len(n) > 1)
    least = _of_tables(
        stored, utility, lambda table, n: smallest_share(table.mechanism, table.prior.shape, n, totals=table.totals)
    )
    # Noise that is nearly always 0 hides nothing.
    if (known := least[np.isfinite(least) & (least > 0)]).size:
        yield (
            "smallest share",
            f"below {in_range(known, 2)}{by_table}, of the records of its row, a cell may be taken for an empty one "
            "that shows the prior alone",
        )
    yield "records", f"{in_range(n)} ({utility.attrs['records']})"
    if (drawn := effective[np.isfinite(effective)]).size:
        yield "effective records", f"r N = {in_range(drawn)}"
    posterior, estimate = utility["expected_kl_posterior"].values, utility["expected_kl_estimate"].values
    if np.all(np.isfinite(posterior)):
        all_tables = ", all tables" * (len(n) > 1)
        yield "KL of posteriors", f"{posterior.sum():.4g} nats expected, private from yours{all_tables}"
    if np.all(np.isfinite(estimate)):
        yield "KL of the draw", f"{in_range(estimate)} nats expected, from the frequencies{by_table}"
    of_estimates = utility["estimate_kl"].values
    if np.all(np.isfinite(of_estimates)):
        yield "KL of the estimate", f"{in_range(of_estimates, 3)} nats expected, from the shares{by_table}"


def _of_tables(stored: Opened, utility: xr.Dataset, error: Callable[[ReleasedTable, float], float | None]) -> Array:
    """A number for each table; NaN where it is not known. A file may hold numbers of which nothing can be computed."""
    known = []
    with np.errstate(all="ignore"):
        for table, n in zip(stored.tables.values(), utility["n_records"].values.tolist(), strict=True):
            value = error(table, n) if n > 0 else None
            known.append(np.nan if value is None else value)
    return np.array(known)


def _grid(utility: xr.Dataset) -> Iterator[tuple[str, str]]:
    """What the grid of an exact draw adds, if there is one."""
    weight, variance = utility["grid_weight"].values, utility["grid_variance"].values
    # A file may hold one of them alone.
    if np.any(np.isfinite(weight)) and np.any(np.isfinite(variance)):
        yield (
            "grid",
            f"adds at most {100 * float(np.nanmax(variance)):.2g} % to the variance of a draw, and draws it to the "
            f"middle by {100 * float(np.nanmax(weight)):.2g} %",
        )


def in_range(values: NDArray[np.float64], digits: int = 5) -> str:
    """The least and the largest of some numbers, or one number if they are equal."""
    low, high = f"{values.min():.{digits}g}", f"{values.max():.{digits}g}"
    return low if low == high else f"{low} to {high}"
