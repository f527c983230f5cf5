"""The short report: 15 lines of 80 columns for any release, with the answer first and every number an upper bound."""

import re
from types import SimpleNamespace
from unicodedata import east_asian_width

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.releases.facts import _implied
from tests.planned import hair_model, planned_sample, three_questions

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hostile_names():
    with pm.Model(coords={"hair": ["p|`<b>", "x" * 200]}) as model:
        p = pm.Dirichlet("名" * 70, np.ones(2), dims="hair")
        pm.Multinomial("名" * 71, n=394, p=p, observed=[108, 286])
    return model


def network(n_features):
    rng = np.random.default_rng(1)
    names = [f"feature {'long name ' * 9}{i}" for i in range(n_features)]
    records = {name: rng.choice(["a", "b", "c"], 300) for name in names}
    categories = {name: ["a", "b", "c"] for name in names} | {"class": ["u", "v"]}
    return dirdp.naive_bayes(records, rng.choice(["u", "v"], 300), categories=categories)


def columns(line):
    return sum(1 + (east_asian_width(sign) in "WF") for sign in line)


CASES = {
    "draw": (hair_model, TARGET, {}),
    "private number": (hair_model, TARGET, {"adjacency": "add-remove", "n_records": 600}),
    "several draws": (hair_model, dirdp.TruncatedCDP(rho=0.1, omega=20), {"released_draws": 3}),
    "RDP at order 1": (hair_model, dirdp.RenyiDP(order=1, epsilon=0.5), {}),
    "hostile names": (hostile_names, TARGET, {}),
    "network": (lambda: network(12), dirdp.PureDP(epsilon=1.0), {"mechanism": "geometric"}),
    "marginals": (lambda: network(2), TARGET, {"mechanism": "marginals"}),
    "unit": (three_questions, TARGET, {"unit": "person", "mechanism": "geometric"}),
}


@pytest.mark.parametrize("case", CASES)
def test_any_release_and_its_plan_fit_into_15_lines_of_80_columns(case):
    make, guarantee, options = CASES[case]
    model = make()
    plan = dirdp.plan(guarantee, model, **options)
    for thing in (plan, dirdp.sample(plan, model)):
        lines = str(dirdp.report(thing)).splitlines()
        assert len(lines) <= 15
        assert max(map(columns, lines)) <= 80
        assert "..." not in str(dirdp.report(thing)).partition("  at most")[2]
        labels = [found[1] for line in lines if (found := re.match(r"  (\S+)  ", line))]
        assert labels[-1] == "next"
        assert {"protects", "at", "odds"} & {label.split()[0] for label in labels} >= {"protects", "odds"}
        assert "<b>" not in dirdp.report(thing)._repr_html_()
        assert len(str(dirdp.report(thing, full=True)).splitlines()) > len(lines)


def test_the_answer_comes_first_and_is_the_draw():
    release = dirdp.sample(TARGET, hair_model())
    title, first, second, *rest = str(dirdp.report(release)).splitlines()
    assert title == "Private posterior draw of p, (1, 1e-06)-DP"
    drawn = release["posterior"]["p"].values.reshape(-1)
    numbers = [float(number) for number in re.findall(r"[01]\.\d{3}", first)]
    np.testing.assert_allclose(numbers, drawn, atol=5.1e-4)
    assert second.startswith("  error ")
    labels = [found[1] for line in rest if (found := re.match(r"  (\S+(?: \S+)?)  ", line))]
    assert labels == ["better", "protects", "at most", "odds", "implies", "mechanism", "utility", "next"]


@pytest.mark.parametrize("options", [{}, {"adjacency": "add-remove", "n_records": 600}])
def test_every_privacy_number_is_an_upper_bound_of_the_curves(options):
    """Oracle: the curves, asked at the orders and deltas that the report prints."""
    release = planned_sample(TARGET, hair_model(), **options)
    text = str(dirdp.report(release))
    # The exact plan of the release, which verify makes from its text.
    curves = dirdp.plan(TARGET, hair_model(), **options).composition
    for epsilon, delta in re.findall(r"epsilon ([\d.]+) at delta ([\de.-]+)", text):
        if float(delta) > 0:
            assert float(epsilon) >= curves.epsilon(float(delta)) * (1 - 1e-2)
            assert curves.delta(float(epsilon)) <= float(delta) * (1 + 1e-6)
    ((renyi, order),) = re.findall(r"RDP: ([\d.]+) at order ([\d.]+)", text)
    ((rho, omega),) = re.findall(r"tCDP: rho ([\d.]+), omega ([\d.]+)", text)
    assert curves.renyi(float(order)) <= float(renyi) <= 1.01 * curves.renyi(float(order))
    assert curves.rho(float(omega)) <= float(rho) <= 1.01 * curves.rho(float(omega))


def test_an_order_next_to_1_is_printed_as_another():
    curves = SimpleNamespace(best_order=lambda delta: 1.0004, renyi=lambda order: order, rho=lambda omega: omega)
    stored = SimpleNamespace(plan=SimpleNamespace(guarantee=dirdp.PureDP(epsilon=1.0)), curves=curves)
    text = _implied(stored, 1e-6)
    assert "at order 1;" not in text
    assert text.startswith("RDP: ")
