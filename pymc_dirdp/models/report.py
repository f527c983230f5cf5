"""What a release promises and what it is worth, in words: text in a terminal, HTML in a notebook."""

import html
import math
from dataclasses import dataclass

import xarray as xr

from pymc_dirdp.errors import ArgumentError

__all__ = ["Report", "report"]


@dataclass(frozen=True)
class Report:
    """Sections of labelled lines. `print` it, or let a notebook show it.

    Attributes
    ----------
    title : str
        What was released.
    sections : tuple of (str, tuple of (str, str))
        Each has a heading and its lines: a label and a text.
    """

    title: str
    sections: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    def __str__(self) -> str:
        width = max(len(label) for _, lines in self.sections for label, _ in lines)
        parts = [self.title, "=" * len(self.title)]
        for heading, lines in self.sections:
            parts += ["", heading, *(f"  {label:<{width}}  {text}" for label, text in lines)]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        def row(label: str, text: str) -> str:
            return f"<tr><th style='text-align:left'>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>"

        body = "".join(
            f"<tr><td colspan=2><strong>{html.escape(heading)}</strong></td></tr>"
            + "".join(row(label, text) for label, text in lines)
            for heading, lines in self.sections
        )
        return f"<h4>{html.escape(self.title)}</h4><table>{body}</table>"


def report(release: xr.DataTree) -> Report:
    """What a release promises, how it was made, and what it is worth. Public numbers only.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, also after `to_netcdf` and back.

    Returns
    -------
    report : Report
        `print(report(release))` shows it as text; a notebook shows it as a table.
    """
    missing = {"posterior", "mechanism", "privacy", "utility"} - set(getattr(release, "children", ()))
    if missing:
        raise ArgumentError(
            f"Expected a release from pymc_dirdp.sample; it lacks the groups {', '.join(sorted(missing))}."
        )
    (name,) = release.children["mechanism"].children
    privacy, utility = release.children["privacy"].to_dataset(), release.children["utility"].to_dataset()
    mechanism = release.children["mechanism"].children[name].to_dataset()
    sections = (
        ("Promise", _promise(privacy)),
        ("Equivalent", _equivalents(privacy)),
        (f"Mechanism of {name!r}", _mechanism(mechanism)),
        ("A priori, without the data", _utility(utility, mechanism)),
    )
    notes = _notes(release)
    return Report(f"Private posterior draw of {name!r}", (*sections, ("Notes", notes)) if notes else sections)


def _promise(privacy: xr.Dataset) -> tuple[tuple[str, str], ...]:
    attrs = privacy.attrs
    lines = [
        ("guarantee", str(attrs["statement"])),
        ("adjacency", f"{attrs['adjacency']}: {attrs['neighbours']}"),
        ("assumptions", _assumptions(float(attrs["min_count"]))),
        ("draws", f"{attrs['draws']}, all of them covered"),
        ("to whom", _to_whom(privacy)),
    ]
    return tuple(lines)


def _assumptions(min_count: float) -> str:
    one = "each person is one record; the prior and the categories were chosen without the data"
    if min_count == 0:
        return one
    return f"{one}; every cell of every data set that could occur holds at least {min_count:g} records (not checkable)"


def _to_whom(privacy: xr.Dataset) -> str:
    attrs = privacy.attrs
    if attrs["guarantee"] == "ApproxDP":
        epsilon, delta = float(attrs["epsilon"]), float(attrs["delta"])
    else:
        at = privacy["epsilon_at"].sel(delta_at=1e-6, method="nearest")
        epsilon, delta = float(at), float(at["delta_at"])
    otherwise = "a different answer" if attrs["adjacency"] == "replace-one" else "no record in the data at all"
    return (
        f"every person in the data: no conclusion from this release is more than {math.exp(epsilon):.3g} times as "
        f"likely as it would be with {otherwise} from that person, up to a probability of {delta:g}"
    )


def _equivalents(privacy: xr.Dataset) -> tuple[tuple[str, str], ...]:
    values = zip(
        privacy["delta_at"].values.tolist(),
        privacy["epsilon_at"].values.tolist(),
        privacy["best_order_at"].values.tolist(),
        strict=True,
    )
    return tuple(
        (f"delta {delta:g}", f"epsilon {eps:.4g} (best Rényi order {order:.3g})") for delta, eps, order in values
    )


def _mechanism(mechanism: xr.Dataset) -> tuple[tuple[str, str], ...]:
    attrs = mechanism.attrs
    alpha, r = mechanism["alpha"].values, float(mechanism["r"])
    low, high = float(alpha.min()), float(alpha.max())
    flat = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    how = f"{attrs['strategy']}, for the {attrs['objective']}" if attrs["strategy"] == "optimal" else attrs["strategy"]
    lines = [
        ("law", f"{attrs['mechanism']}: Dirichlet(r x + alpha), x the counts of {attrs['likelihood']!r}"),
        ("r", f"{r:.4g}" + ("; above 1, so the draw is more concentrated than the posterior" if r > 1 else "")),
        ("alpha", f"{flat}, shape {alpha.shape}"),
        ("strategy", str(how)),
        ("sampler", f"{attrs['sampler']}: floating point" if attrs["sampler"] == "fast" else str(attrs["sampler"])),
    ]
    return tuple(lines)


def _utility(utility: xr.Dataset, mechanism: xr.Dataset) -> tuple[tuple[str, str], ...]:
    if "n_records" not in utility.attrs:
        return (("expected loss", str(utility.attrs["note"])),)
    n, r = int(utility.attrs["n_records"]), float(mechanism["r"])
    planned = "planned for" if mechanism.attrs["adjacency"] == "add-remove" else "public"
    lines = [
        ("records", f"{n} ({planned})"),
        ("effective records", f"r N = {r * n:.4g}"),
        ("KL of posteriors", f"{float(utility['expected_kl_posterior']):.4g} nats expected, private from yours"),
    ]
    if "expected_kl_estimate" in utility:
        lines.append(
            ("KL of the draw", f"{float(utility['expected_kl_estimate']):.4g} nats expected, from the frequencies")
        )
    return tuple(lines)


def _notes(release: xr.DataTree) -> tuple[tuple[str, str], ...]:
    notes = []
    if "reproducible" in release.attrs:
        notes.append(("reproducible", f"{release.attrs['reproducible']}: drawn with a seed, do not publish"))
    if "left_out" in release.attrs:
        notes.append(("left out", str(release.attrs["left_out"])))
    return tuple(notes)
