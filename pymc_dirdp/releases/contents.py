"""What a release holds by construction: its variables, labels and attributes. A guarantee covers nothing else."""

import re
from collections.abc import Iterator
from dataclasses import fields

import xarray as xr

from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.releases.wording import ESTIMATE, NO_NUMBER, records_word, stored_reading
from pymc_dirdp.stored.release import A_PRIORI, CURVES, Stored
from pymc_dirdp.stored.untrusted import Group

__all__ = ["beyond_a_release"]

_LIBRARY = {"inference_library", "inference_library_version"}
_MARKS = _LIBRARY | {"guarantee", "adjacency", "plan_digest", "estimate", "left_out", "reproducible"}
# ArviZ writes these into the group of the draws.
_ARVIZ = {"created_at", "creation_library", "creation_library_version", "creation_library_language"}
_WORDS = {"statement", "neighbours", "unit", "people", "protected", "assumptions"}
_PRIVACY = _WORDS | {
    "guarantee",
    "adjacency",
    "min_count",
    "contribution",
    "groups",
    "draws",
    "pure_epsilon",
    "choices",
}
_SAMPLING = {"sampler", "arithmetic", "randomness"}
_MECHANISM = _SAMPLING | {"mechanism", "family", "observed", "adjacency", "strategy", "objective", "contribution"}


def beyond_a_release(stored: Stored, release: xr.DataTree) -> Iterator[str]:
    """The paths of everything that a file holds and no release does. A file may hold any Deterministics."""
    tables = {f"/mechanism/{name}": table for name, table in stored.tables.items()}
    promise = {field.name for field in fields(stored.guarantee)}
    for node in release.subtree:
        path, dataset = node.path, node.to_dataset()
        group = Group(path, dataset)
        match path:
            case "/" | "/mechanism":
                yield from _more(group, set(), set(), _MARKS if path == "/" else set())
            case "/posterior":
                own = {str(name) for name in dataset.data_vars}
                yield from _more(group, own, _labelled(dataset), _MARKS | _ARVIZ)
            case "/privacy":
                yield from _more(group, set(CURVES), set(CURVES.values()), _PRIVACY | promise)
            case "/utility":
                yield from _more(group, set(A_PRIORI), {"table"}, {"records", "note"})
            case _ if path in tables:
                variables, attributes = _of_mechanism(tables[path].mechanism)
                yield from _more(group, variables, _labelled(dataset), attributes)
            case _:
                yield path
        yield from _other_texts(stored, group)


def _other_texts(stored: Stored, group: Group) -> Iterator[str]:
    """The attributes in which no release has this text."""
    attributes = group.dataset.attrs
    known: dict[str, str | None]
    if group.path == "/utility":
        known = {"records": records_word(stored_reading(stored)), "note": NO_NUMBER}
    else:
        known = {"estimate": ESTIMATE if stored.is_estimate else None}
    wrong = [name for name, text in known.items() if name in attributes and attributes[name] != text]
    if "plan_digest" in attributes and not re.fullmatch("[0-9a-f]{64}", str(attributes["plan_digest"])):
        wrong.append("plan_digest")
    yield from (f"the text of the attribute {name!r} of {group.path}" for name in wrong)


def _of_mechanism(mechanism: TableMechanism) -> tuple[set[str], set[str]]:
    """The names of the variables and of the attributes of a mechanism's group."""
    variables = {"prior"} | {fact.name for fact in mechanism.facts if fact.is_variable}
    variables |= {*mechanism.published_axes, *([mechanism.beside] if mechanism.beside else [])}
    attributes = _MECHANISM | {fact.name for fact in mechanism.facts if not fact.is_variable} | {"chosen_from"}
    if mechanism.publishes and not mechanism.fits_all_tables:
        attributes |= {"least_records", "most_records", "postprocess"}
    return variables, attributes | ({"steps"} if mechanism.has_urn else set())


def _labelled(dataset: xr.Dataset) -> set[str]:
    """The names of the labels that belong to an axis of a variable and have its name."""
    used = {dim for name in dataset.data_vars for dim in dataset.variables[name].dims}
    return {str(name) for name in dataset.coords if name in used and dataset.variables[name].dims == (name,)}


def _more(group: Group, variables: set[str], coords: set[str], attributes: set[str]) -> Iterator[str]:
    dataset, path = group.dataset, group.path.rstrip("/")
    yield from (f"{path}/{name}" for name in dataset.data_vars if name not in variables)
    yield from (f"{path}/{name}" for name in dataset.coords if name not in coords)
    yield from (f"the attribute {name!r} of {group.path}" for name in dataset.attrs if name not in attributes)
    for name, variable in dataset.variables.items():
        yield from (f"the attribute {other!r} of {path}/{name}" for other in variable.attrs)
