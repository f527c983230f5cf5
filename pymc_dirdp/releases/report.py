"""Reports on the guarantee and the accuracy of a release, as text in a terminal and HTML in a notebook."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any, override

import numpy as np
import xarray as xr
from scipy.special import betaincinv

from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.display import Facts, LabelledResult, Sections, clip, dots, select_lines
from pymc_dirdp.errors import DirdpError, quote
from pymc_dirdp.mechanisms.outputs import Draws
from pymc_dirdp.releases.claims import Claiming
from pymc_dirdp.releases.facts import lines_of, no_guarantee, title_of
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.opened import LoadedRelease, content_of, open_release
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.verification import verify, verify_loaded
from pymc_dirdp.releases.view import LEFT_OUT, view
from pymc_dirdp.releases.wording import abbreviated

type Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, repr=False)
class Report(LabelledResult):
    """Sections of labelled lines. `print` it, or display it in a notebook.

    Attributes
    ----------
    title : str
        The released tables.
    sections : tuple of (str, tuple of (str, str))
        Each section has a heading, which is empty in a short report, and lines of a label and a text.

    Notes
    -----
    In a notebook, the short report of a release has a picture of its first table if that has at most 16 cells.

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


def report(release: Any, *, full: bool = False) -> Report:
    """The report on any object but a diagnosis, from public numbers only. See :func:`pymc_dirdp.report`."""
    source = content_of(release)
    if isinstance(source, Claiming | Ledger):
        title, facts = source._facts()
        if isinstance(source, Claiming) and not (verification := verify(release)).follows:
            others = {heading: lines for heading, lines in facts.items() if heading != "Guarantee"}
            title, facts = verification.headline, {"Answer": [], **no_guarantee(verification.failures), **others}
        return Report(title, _sections(facts) if full else _screen(facts))
    tree = release if isinstance(release, xr.DataTree) else None
    stored = (
        source
        if isinstance(source, LoadedRelease)
        else LoadedRelease(source)
        if isinstance(source, Plan)
        else open_release(source)
    )
    verification = verify_loaded(stored, tree)
    facts = lines_of(stored, verification.failures)
    title = title_of(stored) if verification.follows else verification.headline
    if full:
        *sections, (last, notes) = _sections(facts)
        return Report(title, (*sections, (last, (*notes, *_left_out(tree)))))
    guarantee = f", {abbreviated(stored.plan.guarantee)}" if verification.follows else ""
    return Report(
        clip(f"{title}{guarantee}", 80, lines=1 + (not guarantee)),
        _screen(facts),
        (view(stored) if tree is None else tree) if verification.follows and stored.release is not None else None,
    )


def _screen(facts: Facts) -> tuple[tuple[str, Lines], ...]:
    """The lines for one screen, in three blocks without a heading: the answer, the guarantee and the next step."""
    answer, *middle, use = facts
    blocks = (select_lines(facts, headings, 0) for headings in ([answer], middle, [use]))
    # Texts are clipped to a terminal with 80 columns. These may take two lines.
    wide = "protects", "problem", "mechanism", "odds"
    return tuple(
        ("", tuple((clip(label, 9), clip(text, 67, lines=1 + (label in wide))) for label, text in block))
        for block in blocks
        if block
    )


def _sections(facts: Facts) -> tuple[tuple[str, Lines], ...]:
    """All lines of a full report, by heading."""
    _, *middle, _ = facts
    sections = ((heading, select_lines(facts, [heading], 1, 2)) for heading in middle)
    return tuple((heading, lines) for heading, lines in sections if lines)


def _picture(
    release: xr.DataTree,
    *,
    level: float = 0.95,
    most_dots: int = 16,
    most_cells: int = 200,
    most_totals: int = 100_000,
) -> str:
    """A picture of the inference, the prior and the draw. It is empty if the inference takes more than about a second.

    The picture has at most `most_dots` cells, and all tables at most `most_cells`. A draw says little about the private
    total of a row, so inference sums over the possible totals of all rows, at most `most_totals`.
    """
    stored = open_release(release)
    (name, table), *_ = stored.tables.items()
    sizes = [table.prior.size for table in stored.tables.values()]
    totals = sum(
        table.prior[..., 0].size * (table.n_records or 0)
        for table in stored.tables.values()
        if table.mechanism.output_kind is Draws and table.prior.ndim > 1 and not table.totals
    )
    if sizes[0] > most_dots or sum(sizes) > most_cells or totals > most_totals:
        return ""
    try:
        estimate = inferences(release, {}, {}, None, same_records=True).distributions.estimate([level])[name]
    except DirdpError:
        return ""  # Inference may need a prior of a private number of records, for example.
    total = table.prior.sum(axis=-1, keepdims=True)
    tails = np.array([(1 - level) / 2, (1 + level) / 2]).reshape(2, *[1] * table.prior.ndim)
    before = betaincinv(table.prior, total - table.prior, tails).reshape(2, -1).T
    # Only the probability of success of a Beta is shown, because that of failure is its mirror image.
    cells = slice(None, None, 2 if table.family == "beta" else 1)
    draw = view(stored)["posterior"].to_dataset()[name].isel(chain=0, draw=0)
    labels = [", ".join(map(str, cell)) or name for cell in product(*(draw[dim].values for dim in draw.dims))]
    means, ends = estimate.share_means.ravel()[cells], estimate.share_intervals[0].reshape(-1, 2)[cells]
    rows = list(zip(labels, means.tolist(), ends.tolist(), before[cells].tolist(), draw.values.ravel(), strict=True))
    return dots(
        rows, f"{name}: means and {level:.0%} intervals given the release; grey, the prior's; ticks, the release"
    )


def _left_out(tree: xr.DataTree | None) -> Iterator[tuple[str, str]]:
    """The Deterministics that are not among the draws. They are in the tree, but not in the text."""
    attributes = {} if tree is None else getattr(tree.children.get("posterior"), "attrs", {})
    with suppress(TypeError, ValueError, RecursionError):
        names = ", ".join(quote(str(name)) for name in json.loads(attributes.get(LEFT_OUT, "null")))
        yield "left out", f"{names}: more than released variables and single numbers decides them"
