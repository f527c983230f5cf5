"""The table of the papers' statements, and figures of P1, P2 and P4 as numbers."""

import doctest
import math
import re
from functools import reduce

import numpy as np
import printed_p1
import printed_p2
import printed_p3
import printed_p4
import pytest
from scipy.stats import norm

import pymc_dirdp as dirdp
from tests.sources import PAGES, TEXTS, rows_of

ROWS = rows_of(PAGES["docs/papers.md"], "Statement")
NAMED = sorted({name for _, functions, _ in ROWS for name in re.findall(r"`([\w.]+)`", functions)})
PRINTED = (printed_p1, printed_p2, printed_p3, printed_p4)
ROOMS = (dirdp, dirdp.papers, dirdp.mechanisms, dirdp.planning)


def test_every_row_has_a_statement_a_function_and_a_verdict():
    assert len(ROWS) > 50
    for statement, functions, verdict in ROWS:
        assert re.match(r"P[1-4] |P[1-4], ", statement), statement
        assert functions == "none" or re.fullmatch(r"`[\w.]+`(, `[\w.]+`)*", functions), functions
        assert re.match(r"\*(agrees|corrected|misleading|refused)\*", verdict), verdict
        # Only what is refused may have no function.
        assert functions != "none" or verdict.startswith("*refused*")


def test_every_function_of_the_table_exists_and_is_tested():
    tests = {name: text for name, text in TEXTS.items() if re.match(r"tests/.*test_\w+\.py", name)}
    words = {
        word for name, text in tests.items() if name != "tests/test_papers.py" for word in re.findall(r"\w+", text)
    }
    for name in NAMED:
        first, *rest = name.split(".")
        homes = [room for room in ROOMS if first in dir(room)] or [room for room in PRINTED if first in dir(room)]
        assert len(homes) == 1, f"{name} is in {len(homes)} of the rooms that the page names"
        reduce(getattr, rest, getattr(homes[0], first))
        assert name.split(".")[-1] in words, f"no test mentions {name}"


def test_the_table_names_every_function_of_papers():
    """But a mechanism by its own name, and the rules for results of synthetic data, which are not of these four."""
    assert set(dirdp.papers.__all__) - {"Combined", "combine", "SimplexDomain", "TruncatedNoiseMechanism"} <= set(NAMED)
    for room in PRINTED:
        assert {name for name in dir(room) if re.match(r"p\d_", name)} <= set(NAMED)


@pytest.mark.parametrize("room", PRINTED, ids=lambda room: room.__name__)
def test_examples_of_printed_statements_are_right(room):
    failed, tried = doctest.testmod(room, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert not failed
    assert tried


def test_the_figures_that_the_table_of_statements_prints():
    """Each number of a verdict that no other test holds."""
    six = dirdp.papers.SimplexDomain(5, eta=0.028, etabar=0.05, b=0.1)
    assert dirdp.papers.p3_lemma_1(six, 171.87, 1e-3) == pytest.approx(9.6e-6, rel=5e-3)
    assert dirdp.papers.p3_lemma_1(six, 171.87, 1e-6) == pytest.approx(4.0e-20, rel=1e-2)
    bound = dirdp.papers.p2_theorem_1(gamma=1.0, alpha_min=1.5, delta_2_squared=1.0).rho
    exact = dirdp.mechanisms.DirichletMechanism(np.full(6, 1.5), 1.0, adjacency="add-remove").rho(2.0)
    assert bound / exact == pytest.approx(4.5, abs=0.05)
    # P1 equation 14, of Figure 8.
    for order in (2, 10, 50, 200):
        alpha = 1 + 4 * (order - 1) * 0.1
        known = dirdp.papers.p1_theorem_1(order=order, r=0.1, alpha_min=alpha)
        printed = dirdp.privacy.convert(known, dirdp.ApproxDP, delta=1e-5).epsilon
        assert dirdp.mechanisms.DirichletMechanism(np.full(4, alpha), 0.1).epsilon(1e-5) < printed
    # P3 Figure 1: epsilon 1, delta 0.01 and a step of 0.1, by the theorem that P3 cites.
    quantile = float(norm.isf(0.01))
    assert 0.1 * (quantile + math.sqrt(quantile**2 + 2)) / 2 == pytest.approx(0.2524, abs=5e-5)
    # P4, Definition 4 for balanced data.
    for n, better in ((7, True), (8, False), (100, False)):
        balanced = [n // 2, n - n // 2]
        printed = dirdp.papers.HellingerMechanism([1, 1], n, 0.25)
        laplace = dirdp.papers.p4_lap_mech(epsilon=1.0, prior=[1, 1], n_records=n)
        assert (printed.expected_distance(balanced) < laplace.expected_distance(balanced)) == better
        assert printed.pure_epsilon < 0.5


def test_p4_is_more_accurate_for_balanced_data_only():
    """300 records, Beta(1, 1), pure epsilon 1: expected Hellinger distances of the table under "Rare events"."""
    one, flat, n = dirdp.PureDP(epsilon=1.0), [1, 1], 300
    calibrated = dirdp.papers.HellingerMechanism.for_guarantee(one, prior=flat, n_records=n)
    improved = dirdp.papers.p4_ilap_mech(epsilon=1.0, prior=flat, n_records=n)
    laplace = dirdp.papers.p4_lap_mech(epsilon=1.0, prior=flat, n_records=n)
    geometric = dirdp.papers.TruncatedNoiseMechanism.for_guarantee(one, prior=flat, n_records=n)
    expected = {
        150: (0.037, 0.082, 0.044, 0.035),
        10: (0.281, 0.219, 0.121, 0.093),
        3: (0.782, 0.326, 0.207, 0.155),
        0: (0.924, 0.166, 0.081, 0.118),
    }
    for x, printed in expected.items():
        found = [m.expected_distance([x, n - x]) for m in (calibrated, laplace, improved, geometric)]
        assert found == pytest.approx(printed, abs=6e-4)
