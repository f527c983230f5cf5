"""The report on one screen: the answer first, then the guarantee, the mechanism and what to do next."""

import math

import numpy as np
import xarray as xr

from pymc_dirdp.display import clipped
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.releases.opened import Opened, ReleasedTable
from pymc_dirdp.releases.statement import DELTA, in_range, odds_of_the_truth, typical_errors
from pymc_dirdp.releases.verification import Verification
from pymc_dirdp.releases.view import view
from pymc_dirdp.releases.wording import NEXT

type Lines = tuple[tuple[str, str], ...]


def summary(
    stored: Opened, verification: Verification, utility: xr.Dataset, better: Lines
) -> tuple[tuple[str, Lines], ...]:
    """The sections of the short report, which are 13 lines at most.

    Parameters
    ----------
    stored : Opened
        A release, or a plan.
    verification : Verification
    utility : Dataset
        Its group `utility`.
    better : tuple of (str, str)
        Tables for which another mechanism is better, and the advice.
    """
    answers = [*_shares(stored), *_errors(stored, utility), *_advised(stored, better)]
    facts = [("mechanism", _mechanism(stored)), *_utility(utility)]
    if verification.follows:
        guaranteed = _guaranteed(stored, utility)
    else:
        (name, sentence), *_, instead = verification.failures
        guaranteed = ("problem", f"{name}: {sentence}"), instead
    sections = answers, [*guaranteed, *facts], [("next", _next(stored, follows=verification.follows))]
    return tuple(("", tuple(_fitted(*line) for line in lines)) for lines in sections)


def _fitted(label: str, text: str) -> tuple[str, str]:
    lines = 2 if label in ("protects", "problem", "mechanism") else 1
    # What fits beside the labels of a terminal of 80 columns.
    return clipped(label, 9), clipped(text, 67, lines=lines)


def _more(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _shares(stored: Opened) -> Lines:
    """The shares of the first table, if it is a row that fits into a line."""
    if stored.release is None:
        return ()
    name, *others = stored.tables
    posterior = view(stored)["posterior"].to_dataset()
    more = f"; {_more(len(others), 'more table')}" * bool(others)
    shares = posterior[name].mean([dim for dim in ("chain", "draw") if dim in posterior[name].dims])
    # Shares of a table in one line; others are looked up in the release.
    if shares.ndim > 1 or shares.size > 6:
        return ((name, f"shape {shares.shape}, see release['posterior'][{name!r}]{more}"),)
    labels = [""] * shares.size if not shares.ndim else [str(label) for label in shares[shares.dims[0]].values]
    parts = (f"{label} {value:.3f}".strip() for label, value in zip(labels, shares.values.reshape(-1), strict=True))
    return ((name, f"{', '.join(parts)}{more}"),)


def _errors(stored: Opened, utility: xr.Dataset) -> Lines:
    if "note" in utility.attrs:
        return (("error", str(utility.attrs["note"])),)
    found = dict(typical_errors(stored, utility))
    label = next((label for label in ("of the draw", *found) if label in found), None)
    if label is None:
        return ()
    # What is said after a comma does not fit into a line, and is in the full report.
    return (("error", f"{found[label].partition(',')[0]} ({label.removeprefix('of ')})"),)


def _advised(stored: Opened, better: Lines) -> Lines:
    if not better:
        return ()
    (_, advice), *others = better
    return (("better", advice + f"; {_more(len(others), 'more table')}" * bool(others)),)


def _guaranteed(stored: Opened, utility: xr.Dataset) -> Lines:
    """The guarantee at two deltas, as odds, and as divergences. All numbers are rounded up."""
    curves, guarantee = stored.curves, stored.plan.guarantee
    delta = guarantee.stated_delta or DELTA
    epsilon, pure = float(curves.epsilon(delta)), stored.pure_epsilon
    parts = [f"epsilon {up(epsilon, 4):.4g} at delta {delta:g}", f"{up(pure, 4):.4g} at delta 0"]
    if guarantee.is_pure or pure <= epsilon:
        parts = [f"epsilon {up(pure, 4):.4g} at delta 0"]
    elif math.isinf(pure):
        parts = parts[:1]
    return (
        ("protects", _protects(stored, utility)),
        ("at most", "; ".join(parts)),
        ("odds", odds_of_the_truth(stored, short=True)),
        *_divergences(stored, delta),
    )


def _divergences(stored: Opened, delta: float) -> Lines:
    order = stored.plan.guarantee.largest_order
    if not 1 < order < math.inf:
        # As it is printed: an order next to 1 would be 1 there.
        best = float(f"{float(stored.curves.best_order(delta)):.3g}")
        # A bounded loss has no best order, and orders above this one say the same as delta 0.
        order = best if 1 < best < 256.0 else 10.0
    renyi, rho = float(stored.curves.renyi(order)), float(stored.curves.rho(order))
    parts = [
        *([f"RDP: {up(renyi, 3):.3g} at order {order:g}"] * math.isfinite(renyi)),
        *([f"tCDP: rho {up(rho, 3):.3g}, omega {order:g}"] * math.isfinite(rho)),
    ]
    return (("implies", "; ".join(parts)),) if parts else ()


def _protects(stored: Opened, utility: xr.Dataset) -> str:
    reading = stored.plan.reading
    if not (reading.stated.unit or reading.stated.counted or reading.label != "record"):
        who = f"each person, with {shared}" if (shared := reading.shared_tables) else ("each record as another person")
        if reading.relation.records_are_public:
            sizes = in_range(utility["n_records"].values, 15)
            rows = ", also of each row," * any(part.totals for part in stored.plan.parts)
            return f"{who}; the number of records, {sizes}{rows or ','} is public"
        return f"{who}, and whether it is in the data"
    every = f"every {reading.label}" if reading.stated.unit or reading.stated.counted else "each person"
    return f"{every}: {reading.neighbours}"


def _mechanism(stored: Opened) -> str:
    distributions = list(dict.fromkeys(map(_distribution, stored.tables.values())))
    more = f" and {_more(len(distributions) - 1, 'other')}" if len(distributions) > 1 else ""
    sampler = "" if stored.release is None else f"; {stored.release.sampler} sampler"
    return f"{distributions[0]}{more}{sampler}"


def _distribution(table: ReleasedTable) -> str:
    mechanism = table.mechanism
    if mechanism.tempered is None:
        return mechanism.in_short
    return f"{mechanism.formula.partition(',')[0]}, {mechanism.in_short}"


def _utility(utility: xr.Dataset) -> Lines:
    known = {name: utility[name].values for name in ("expected_kl_estimate", "expected_kl_posterior", "estimate_kl")}
    known = {name: values for name, values in known.items() if values.size and np.all(np.isfinite(values))}
    parts = []
    if "expected_kl_estimate" in known:
        parts.append(f"{in_range(known['expected_kl_estimate'], 3)} nats (draw, frequencies)")
    if "expected_kl_posterior" in known:
        parts.append(f"{known['expected_kl_posterior'].sum():.3g} (posteriors)")
    if not parts and "estimate_kl" in known:
        parts.append(f"{in_range(known['estimate_kl'], 3)} nats (estimate, shares)")
    return (("utility", f"KL {', '.join(parts)}"),) if parts else ()


def _next(stored: Opened, *, follows: bool) -> str:
    if stored.release is None:
        key = "plan of a model" if stored.plan.is_of_model else "plan"
    elif not follows:
        key = "false"
    elif stored.plan.is_of_model:
        key = "model"
    elif stored.is_estimate:
        key = "estimate"
    else:
        key = "inference"
    return NEXT[key][0]
