"""Plans and releases of every kind: what their text says, what they spend and show, and their paths.

Seeded releases have the numbers in `tests/reference/releases.json`. A change of them is a change of what is released,
so it has to be meant, and the changelog has to say it. `python tests/releases/test_contract.py` writes the file again.
"""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from unicodedata import east_asian_width

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.interop import as_mechanism
from tests.releases.kinds import KINDS, planned, released
from tests.verbs import CALLS, VERBS, called, names_of

REFERENCE = Path(__file__).parent.parent / "reference" / "releases.json"
QUICK = ["draw", "order 1", "rows", "private number", "marginals", "wide", "hostile names", "people"]
TAKE_A_RELEASE = [name for name, verb in VERBS.items() if "release" in names_of(verb) and name != "save"]


def every():
    params = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.thorough) for kind in KINDS]
    return pytest.mark.parametrize("kind", params)


def seeded(plan, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
        return dirdp.sample(plan, model, random_seed=20261121, progressbar=False)


def numbers(tree):
    found = {}
    for group in tree.subtree:
        found |= {f"{group.path}@{name}": one for name, one in group.attrs.items() if isinstance(one, int | float)}
        for name, values in group.data_vars.items():
            if values.dtype.kind in "iuf":
                found[f"{group.path}/{name}"] = values.values.tolist()
    return found


@every()
def test_a_plan_comes_back_from_a_file_and_draws_the_same(kind, tmp_path):
    model, plan = planned(kind)
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again.digest == plan.digest
    assert str(dirdp.report(again, full=True)) == str(dirdp.report(plan, full=True))
    for one, other in zip(again.parts, plan.parts, strict=True):
        assert (one.mechanism, one.table.dims) == (other.mechanism, other.table.dims)
    assert again.privacy_unit == plan.privacy_unit
    drawn, other = (seeded(one, model) for one in (plan, again))
    assert drawn["posterior"].to_dataset().drop_attrs().identical(other["posterior"].to_dataset().drop_attrs())
    dirdp.save(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()
    before, now = json.loads(REFERENCE.read_text(encoding="utf-8"))[kind], numbers(drawn)
    assert set(now) == set(before)
    for place, value in before.items():
        # Solvers of another SciPy, or on another processor, end in other last digits (1e-7 of r was seen).
        np.testing.assert_allclose(now[place], value, rtol=3e-6, atol=1e-300, err_msg=place)


@every()
def test_a_release_that_is_read_is_what_was_written(kind, tmp_path):
    release = released(kind)
    dirdp.save(release, tmp_path / "r.json")
    back = dirdp.load(tmp_path / "r.json")
    assert back.identical(release)
    assert list(back["mechanism"].children) == list(release["mechanism"].children)
    for node in release.subtree:
        for name, variable in node.to_dataset().variables.items():
            own = back[node.path].to_dataset()[name]
            assert own.dtype.kind == variable.dtype.kind
            assert repr(own.values.tolist()) == repr(variable.values.tolist())
        for name, value in node.attrs.items():
            for builtin in (str, float):
                assert isinstance(back[node.path].attrs[name], builtin) == isinstance(value, builtin)
    dirdp.save(back, tmp_path / "again.json")
    assert dirdp.load(tmp_path / "again.json").identical(release)


@every()
def test_what_the_library_made_follows_also_from_its_text(kind):
    (_, plan), release, target = planned(kind), released(kind), KINDS[kind][1]
    assert plan.composition.satisfies(target)
    less = replace(target, **{target.budget_name: 0.98 * target.budget})
    # Algorithm 1 of P1 spends less than it may.
    assert plan.composition.satisfies(less) == (kind == "algorithm 1")
    for made, what in ((plan, "plan"), (release, "release")):
        found = dirdp.verify(made)
        assert bool(found)
        assert found.follows
        assert found.failures == ()
        assert (found.what, found.stated) == (what, target)
        assert set(found.mechanisms) == {part.table.name for part in plan.parts}
        assert ("randomness" in [check.name for check in found.checks]) == (what == "release")
        assert plan.composition.satisfies(found.recomputed)
    assert as_mechanism(release).satisfies(found.recomputed)


def columns(line):
    return sum(1 + (east_asian_width(sign) in "WF") for sign in line)


@every()
def test_any_release_and_its_plan_fit_into_15_lines_of_80_columns(kind):
    for thing in (planned(kind)[1], released(kind)):
        lines = str(dirdp.report(thing)).splitlines()
        assert len(lines) <= 15
        assert max(map(columns, lines)) <= 80
        assert "..." not in str(dirdp.report(thing)).partition("  at most")[2]
        labels = [found[1] for line in lines if (found := re.match(r"  (\S+)  ", line))]
        assert labels[-1] == "next"
        assert {"protects", "at", "odds"} & {label.split()[0] for label in labels} >= {"protects", "odds"}
        assert "<b>" not in dirdp.report(thing)._repr_html_()
        assert len(str(dirdp.report(thing, full=True)).splitlines()) > len(lines)


def shown(answer):
    """All numbers of an answer."""
    if isinstance(answer, xr.DataTree):
        return {node.path: node.to_dataset().to_dict() for node in answer.subtree}
    if isinstance(answer, pm.Model):
        return sorted(answer.named_vars), float(answer.compile_logp(mode=PLAIN)(answer.initial_point(1)))
    if isinstance(answer, plt.Axes):
        points = [part.get_offsets().tolist() for part in answer.collections if hasattr(part, "get_offsets")]
        return [line.get_xydata().tolist() for line in answer.lines], points, answer.get_title()
    if hasattr(answer, "to_dict"):
        return answer.to_dict()
    return float(answer.eval(mode=PLAIN)) if hasattr(answer, "eval") else str(getattr(answer, "recomputed", answer))


def test_curves_and_a_classifier_are_read_from_a_path(tmp_path):
    given, path = CALLS["Classifier"](), tmp_path / "tables.json"
    dirdp.save(given["tables"], path)
    assert as_mechanism(path).epsilon(1e-6) == as_mechanism(given["tables"]).epsilon(1e-6)
    powers, again = (dirdp.Classifier(**given | more).powers for more in ({}, {"tables": path}))
    assert powers.to_dict() == again.to_dict()
    assert len(TAKE_A_RELEASE) >= 16


@pytest.mark.parametrize("verb", TAKE_A_RELEASE)
def test_a_path_says_what_its_tree_says(verb, tmp_path):
    is_random = "random_seed" in names_of(VERBS[verb]) and verb != "fit"
    given = CALLS[verb]() | ({"random_seed": 1} if is_random else {})
    path = tmp_path / "release.json"
    dirdp.save(given["release"], path)
    assert repr(shown(called(verb, given))) == repr(shown(called(verb, given | {"release": path})))
    for name, error in (("nothing.json", FileNotFoundError), ("text.json", ReleaseError)):
        (tmp_path / "text.json").write_text("mine")
        with pytest.raises(error, match=name.replace(".", r"\.")):
            called(verb, given | {"release": str(tmp_path / name)})
    plt.close("all")


if __name__ == "__main__":
    found = {kind: numbers(seeded(*planned(kind)[::-1])) for kind in KINDS}
    REFERENCE.write_text(json.dumps(found) + "\n", encoding="utf-8")
