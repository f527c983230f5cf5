"""The guarantee of a release and its accuracy, in words: text in a terminal, HTML in a notebook."""

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any, override

import numpy as np
import xarray as xr
from scipy.special import betaincinv

from pymc_dirdp.display import Labelled, Sections, clipped, dots
from pymc_dirdp.errors import DirdpError, shown
from pymc_dirdp.mechanisms.outputs import Draws, Marginals, NoisyTable
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.planning.choosing import TableFacts, Terms, noise_instead
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.choices import curves_of
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.opened import Opened, ReleasedTable, opened
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.statement import expected_errors, odds_of_the_truth
from pymc_dirdp.releases.summary import summary
from pymc_dirdp.releases.verification import Verification, verified
from pymc_dirdp.releases.view import LEFT_OUT, mechanism_group, utility_of, view
from pymc_dirdp.releases.wording import taken_for_granted, totals_in_words

type Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, repr=False)
class Report(Labelled):
    """Sections of labelled lines. `print` it, or let a notebook show it.

    Attributes
    ----------
    title : str
        The tables that were released.
    sections : tuple of (str, tuple of (str, str))
        Each section has a heading, which is empty in a short report, and its lines: a label and a text.

    Notes
    -----
    In a notebook the short report of a release has a picture of its first table, if that has 16 cells at most.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> found = dirdp.report(dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model), full=True)
    >>> [heading for heading, _ in found.sections][:2]
    ['Expected error, without the data', 'Guarantee']
    """

    title: str
    sections: tuple[tuple[str, Lines], ...]
    _release: xr.DataTree | None = field(default=None, compare=False)

    @override
    def _repr_html_(self) -> str:
        return super()._repr_html_() + ("" if self._release is None else _picture(self._release))

    @override
    def _parts(self) -> tuple[str, Sections]:
        return self.title, self.sections


def report(release: xr.DataTree | Plan, *, full: bool = False) -> Report:
    """The report on a release or a plan, by public numbers only; see :func:`pymc_dirdp.report`."""
    planned = isinstance(release, Plan)
    if isinstance(release, Plan):
        stored = Opened(release)
        verification = verified(stored)
    else:
        stored = opened(release)
        verification = verified(stored, release)
    utility = utility_of(stored)
    noisy = len(stored.plan.publishing(NoisyTable)) == len(stored.plan.parts)
    what = "estimate" if stored.is_estimate else "table of noisy counts" if noisy else "posterior draw"
    title = f"{'Plan of a private' if planned else 'Private'} {what} of {_names(tuple(stored.tables))}"
    if not verification.follows:
        title = verification.headline
    better = tuple((text, names) for text, names in _alike(_advice(stored, utility)).items() if verification.follows)
    if not full:
        guarantee = f", {_short(stored.plan.guarantee)}" if verification.follows else ""
        advice = tuple((_label(names), text) for text, names in better)
        # The columns of a terminal.
        return Report(
            clipped(f"{title}{guarantee}", 80, lines=1 + (not guarantee)),
            summary(stored, verification, utility, advice),
            release if verification.follows and not isinstance(release, Plan) else None,
        )
    errors = ("Expected error, without the data", expected_errors(stored, utility))
    guaranteed = _guaranteed(stored, verification)
    sections = (
        *((errors, *guaranteed) if verification.follows else (*guaranteed, errors)),
        ("Mechanism", _mechanism(stored)),
        ("Tables", _tables(stored)),
        *((("Marginals", marginals),) if (marginals := _marginals(stored, utility)) else ()),
    )
    instead = ((_label(names), f"{text}{_listed(names)}") for text, names in better)
    notes = (*_reading(stored), *_notes(stored), *_left_out(release), *instead)
    return Report(title, (*sections, ("Notes", notes)) if notes else sections)


def _picture(release: xr.DataTree, *, level: float = 0.95, most_dots: int = 16, most_cells: int = 200) -> str:
    """What is inferred from a release, the prior and the release, if its first table fits and none takes long.

    The picture has at most `most_dots` cells; inference of `most_cells` in all tables takes a second.
    """
    stored = opened(release)
    (name, table), *_ = stored.tables.items()
    sizes = [one.prior.size for one in stored.tables.values()]
    if sizes[0] > most_dots or sum(sizes) > most_cells:
        return ""
    try:
        found = inferences(release, {}, {}, None, jointly=True).distributions.estimate([level])[name]
    except DirdpError:
        return ""  # Nothing is inferred without a prior of a private number of records, for example.
    total = table.prior.sum(axis=-1, keepdims=True)
    tails = np.array([(1 - level) / 2, (1 + level) / 2]).reshape(2, *[1] * table.prior.ndim)
    before = betaincinv(table.prior, total - table.prior, tails).reshape(2, -1).T
    # A Beta shows the probability of success; that of failure is its mirror image.
    shown = slice(None, None, 2 if table.family == "beta" else 1)
    drawn = view(stored)["posterior"].to_dataset()[name].isel(chain=0, draw=0)
    labels = [", ".join(map(str, cell)) or name for cell in product(*(drawn[dim].values for dim in drawn.dims))]
    means, ends = found.share_means.ravel()[shown], found.share_intervals[0].reshape(-1, 2)[shown]
    rows = list(zip(labels, means.tolist(), ends.tolist(), before[shown].tolist(), drawn.values.ravel(), strict=True))
    return dots(
        rows, f"{name}: means and {level:.0%} intervals given the release; grey, the prior's; ticks, the release"
    )


def _short(guarantee: Guarantee) -> str:
    """A guarantee with the usual abbreviations."""
    return (
        str(guarantee)
        .replace("-truncated concentrated differential privacy", "-tCDP")
        .replace("-zero-concentrated differential privacy", "-zCDP")
        .replace("Rényi differential privacy", "RDP")
        .replace("differential privacy", "DP")
    )


def _names(names: tuple[str, ...], *, most: int = 4) -> str:
    """The names of tables in a title, `most` of them."""
    more = f" and {len(names) - most} more tables" if len(names) > most + 1 else ""
    return ", ".join(names[:most] if more else names) + more


def _alike(lines: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text once, with the names of all that it is about."""
    by_text: dict[str, list[str]] = {}
    for name, text in lines:
        by_text.setdefault(text, []).append(name)
    return by_text


def _label(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} tables"


def _guaranteed(stored: Opened, verification: Verification) -> tuple[tuple[str, Lines], ...]:
    """The guarantee and its equivalents, or why there is none."""
    if verification.follows:
        return ("Guarantee", _guarantee(stored)), ("Equivalent", _equivalents(stored))
    return (("No guarantee", verification.failures),)


def _guarantee(stored: Opened) -> Lines:
    plan = stored.plan
    assumed = (f"{sentence} (not checkable)" for sentence in taken_for_granted(stored.plan))
    return (
        ("guarantee", str(plan.guarantee)),
        ("protected", plan.protected),
        ("adjacency", plan.adjacency),
        ("assumptions", "; ".join(["the prior and the categories were chosen without the data", *assumed])),
        *((choice.called, choice.in_words) for choice in stored.plan.after),
        ("draws", f"{plan.draws}, all of them covered"),
        ("odds of the truth", odds_of_the_truth(stored)),
    )


def _equivalents(stored: Opened) -> Lines:
    deltas = np.array([1e-4, 1e-5, 1e-6, 1e-8, 1e-10])
    columns = [
        deltas.tolist(),
        *(np.asarray(curve(deltas)).tolist() for curve in (stored.curves.epsilon, stored.curves.best_order)),
    ]
    pure: Lines = ()
    if math.isfinite(stored.pure_epsilon):
        pure = (("delta 0", f"epsilon {up(stored.pure_epsilon, 4):.4g}, for every single output"),)
    return pure + tuple(
        (f"delta {up(delta):g}", f"epsilon {up(eps, 4):.4g} (best Rényi order {order:.3g})")
        for delta, eps, order in zip(*columns, strict=True)
    )


def _mechanism(stored: Opened) -> Lines:
    tables = tuple(stored.tables.values())
    distributions = dict.fromkeys(map(_distribution, tables))
    lines = [("distribution", "; ".join(distributions))]
    # Noise has one setting only, so it has no strategy.
    if drawn := [_attributes(table) for table in tables if table.mechanism.tempered is not None]:
        strategy, objective = drawn[0]["strategy"], drawn[0]["objective"]
        lines.append(("strategy", f"{strategy}, for the {objective}" if strategy == "optimal" else strategy))
    every = [_attributes(table) for table in tables]
    samplers = dict.fromkeys(f"{attrs['sampler']}{_arithmetic(attrs)}" for attrs in every)
    sources = dict.fromkeys(str(attrs.get("randomness", "")) for attrs in every)
    lines.append(("sampler", "; ".join(samplers)))
    if any(sources):
        lines.append(("randomness", "; ".join(filter(None, sources))))
    return tuple(lines)


def _arithmetic(attrs: dict[Any, Any]) -> str:
    if not attrs.get("arithmetic"):
        return ""
    grid = f"; on a grid of {attrs['steps']} steps" if "steps" in attrs else ""
    return f"; {attrs['arithmetic']}{grid}"


def _attributes(table: ReleasedTable) -> dict[Any, Any]:
    attributes = mechanism_group(table.part, table.stored).attrs
    possible = table.possible_records
    return attributes | ({} if possible is None else {"least_records": possible[0], "most_records": possible[-1]})


def _distribution(table: ReleasedTable) -> str:
    mechanism = table.mechanism
    return f"{type(mechanism).__name__}: {mechanism.formula}"


def _tables(stored: Opened) -> Lines:
    """How each table is released, and what it is counted from. What is the same for several is said once."""
    observed = {name: ", ".join(table.observed_names) for name, table in stored.tables.items()}
    lines = []
    for text, names in _alike((name, _table(table)) for name, table in stored.tables.items()).items():
        several = [f"{name} from {observed[name]}" for name in names]
        observed_in_words = f", from {observed[names[0]]}" if len(names) == 1 else _listed(several)
        lines.append((_label(names), text + observed_in_words))
    return tuple(lines)


def _marginals(stored: Opened, utility: xr.Dataset) -> Lines:
    """The marginals that are measured, with the standard deviation of the noise in their cells."""
    sizes = dict(zip(utility["table"].values.tolist(), utility["n_records"].values.tolist(), strict=True))
    lines = []
    for name, table in stored.tables.items():
        dims = [dim for dim, _ in table.cell_labels]
        axes_and_sds = (json.loads(_attributes(table).get(which, "[]")) for which in ("marginals", "noise_sds"))
        for axes, sd in zip(*axes_and_sds, strict=True):
            share = f", {sd / sizes[name]:.2g} of all records" if sizes[name] > 0 else ""
            lines.append(
                (" x ".join(dims[axis] for axis in axes), f"noise of standard deviation {sd:.4g} a cell{share}")
            )
    return tuple(
        (names[0] if len(names) == 1 else f"{len(names)} marginals", f"{text}{_listed(names)}")
        for text, names in _alike(lines).items()
    )


def _listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if len(names) > 1 else ""


def _table(table: ReleasedTable) -> str:
    drawn, attrs = table.mechanism.tempered, _attributes(table)
    above = "; with r above 1 the draw is more concentrated than the posterior" * (drawn is not None and drawn.r > 1)
    possible = ""
    if "most_records" in attrs:
        possible = f"; {attrs['least_records']} to {attrs['most_records']} records taken for possible"
    public = f", publicly {totals_in_words(table.totals)}" if table.totals else ""
    return f"{table.mechanism.in_short}, shape {table.prior.shape}{public}{_chosen(attrs)}{above}{possible}"


def _chosen(attrs: dict[Any, Any]) -> str:
    if "chosen_from" not in attrs:
        return ""
    (best, least), *others = json.loads(attrs["chosen_from"])
    if not others:
        return f"; {best} by auto, nothing else can keep the guarantee"
    second, kl = others[0]
    times = f"{kl / least:.3g} times" if least > 0 else "more than"
    return f"; {best} by auto: next is {second} with {times} its expected KL"


def _reading(stored: Opened) -> Lines:
    """What the draws are, and what they are not."""
    # Tables of one category are beside an estimate, and hold no draw either.
    fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
    tables = {name: stored.tables[name] for name in fitted or stored.tables}
    by_text = _alike((name, table.mechanism.draws_in_words) for name, table in tables.items())
    # Where all tables are alike, there is no need to name them again.
    said = " of {}" if len(by_text) > 1 else ""
    return tuple((f"draws{said.format(', '.join(names))}", text) for text, names in by_text.items())


def _notes(stored: Opened) -> Lines:
    notes = []
    if stored.reproducible:
        notes.append(("reproducible", "not private: drawn with a seed, do not publish"))
    return tuple(notes)


def _left_out(release: xr.DataTree | Plan) -> Lines:
    """The Deterministics that are not among the draws. The tree says so, and not the text, which holds none."""
    attributes = {} if isinstance(release, Plan) else getattr(release.children.get("posterior"), "attrs", {})
    with suppress(TypeError, ValueError, RecursionError):
        names = ", ".join(shown(str(name)) for name in json.loads(attributes.get(LEFT_OUT, "null")))
        return (("left out", f"{names}: more than released variables and single numbers decides them"),)
    return ()


def _advice(stored: Opened, utility: xr.Dataset) -> Iterator[tuple[str, str]]:
    """The tables for which noise on counts has a clearly smaller expected KL, in plans with the same guarantee."""
    sizes = dict(zip(utility["table"].values.tolist(), utility["n_records"].values.tolist(), strict=True))
    open_to_it = {
        name: table
        for name, table in stored.tables.items()
        # What loses nothing cannot lose less.
        if table.mechanism.output_kind is Draws
        and "chosen_from" not in _attributes(table)
        and table.mechanism.pure_epsilon > 0
        and sizes[name] > 0
    }
    facts = {name: TableFacts(table.prior, int(sizes[name]), table.contribution) for name, table in open_to_it.items()}
    plan = stored.plan
    terms = Terms(
        groups=plan.groups,
        adjacency=plan.adjacency,
        public_totals=plan.reading.sizes_are_public,
        draws=plan.draws,
        before=curves_of(plan.after),
    )
    # A file may hold numbers of which nothing can be computed.
    with np.errstate(all="ignore"):
        better = noise_instead(plan.guarantee, facts, terms, {name: one.mechanism for name, one in open_to_it.items()})
    for name, (kind, times) in better.items():
        # Smaller ratios are not reported: they are within the error of the simulation or a matter of taste.
        if times > 1.25:
            yield (
                name,
                f"mechanism='auto': a {times:.2g} times smaller expected KL ({kind} noise)",
            )
