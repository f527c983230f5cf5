"""P3's statements on its simplex mechanism, as printed and corrected: reference values, bounds, brute force."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from printed_p3 import p3_corollary, p3_theorem
from scipy.special import betaln, gammaln

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers import p3_lemma_1, p3_problem_14, p3_theorem_1_corrected
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain


def domain(m=2, eta=0.05, etabar=0.05, b=0.4, **options):
    return SimplexDomain(m, eta=eta, etabar=etabar, b=b, **options)


GAMMA = {k: p3_problem_14(domain(), k, 0.05) for k in (3, 24)}

# Values of 30 digits and more, from papers.json of the reference; the comment says what P3 prints.
REFERENCE = {
    "G01": (lambda: p3_lemma_1(domain(), 24, 0.002), 0.04336593975320487),
    "G09": (lambda: p3_lemma_1(domain(5, 0.028), 171.87, 1e-3), 9.5853271896766145e-6),
    "G11": (lambda: p3_lemma_1(domain(5, 0.028), 171.87, 1e-6), 4.0186283899955103e-20),
    "G21": (lambda: p3_theorem_1_corrected(domain(), 3, GAMMA[3]), 17.531723564275852),  # printed 2.30
    "G32": (lambda: p3_corollary(domain(), 24, GAMMA[24]), 71.831058810533331),
    "G33": (lambda: p3_theorem(domain(b=1, weight=0.01), 24, GAMMA[24], number=2), 1.1223179133143422),
    "G34": (lambda: p3_theorem(domain(b=1), 24, GAMMA[24], number=3, alpha=0.01), 13.129682913085593),
    "G38": (lambda: p3_theorem_1_corrected(domain(3, b=0.1), 24, 0.0016075059278105724), 10.965655119045653),
    "G42": (
        lambda: p3_theorem(domain(2, 0.3, 0.1999, 1.0), 4, 0.01, number=3, alpha=0.1),
        -6.9523569335979534,
    ),
}


def test_reference_values():
    path = Path(__file__).parents[1] / "reference" / "papers.json"
    stored = {value["id"]: float(value["value"]) for value in json.loads(path.read_text())["values"]}
    for name, (value, expected) in REFERENCE.items():
        assert stored[name] == expected
        assert value() == pytest.approx(expected, rel=1e-10), name


def test_delta_has_a_closed_form_for_exponential_entries():
    """With k eta = 1 it is 1 - (1 - m gamma)**(k - 1).

    From k = 1e4 on, a fixed number of nodes gave wrong digits, and from 3e4 on negative probabilities.
    """
    for m, k in ((2, 20.0), (7, 40.0), (2, 1e4), (7, 3e4), (7, 1e5), (2, 1e6)):
        for gamma in (1e-8, 0.001, 0.5 / m):
            if k * gamma > 3000:
                continue  # The probability is 1, and takes many terms.
            exact = -math.expm1((k - 1) * math.log1p(-m * gamma))
            assert p3_lemma_1(domain(m, 1 / k), k, gamma) == pytest.approx(exact, rel=1e-10 if k <= 1e4 else 1e-9)


def test_a_gamma_near_its_largest():
    """Oracle: a closed form for k eta = 1. Far along the path one series loses all digits."""
    for m, k in ((2, 2.2), (2, 5.0), (5, 7.0), (2, 24.0), (2, 900.0), (5, 60.0), (2, 5e3)):
        for share in (0.9, 0.95, 0.98, 0.9999):
            if k * (1 - share) < 0.1:
                continue
            exact = -math.expm1((k - 1) * math.log1p(-share))
            there = domain(m, 1 / k, 1e-4, 0.1)
            assert p3_lemma_1(there, k, share / m) == pytest.approx(exact, rel=1e-10)
    with pytest.raises(ArgumentError, match="for numerical integration"):
        p3_lemma_1(domain(), 3, 0.49)
    assert p3_lemma_1(domain(2, 0.01), 24, 0.49) == pytest.approx(1.0, abs=1e-11)


def test_theorem_1_is_too_small_for_large_steps():
    """ERRATA P3.2: printed .3958, true 3.6779, by brute force over pairs of inputs and the corners of outputs."""
    there = domain(2, 0.3, 0.1999, 1.0)
    assert p3_theorem(there, 4, 0.01) == pytest.approx(0.3958, abs=5e-5)
    grid = np.linspace(0.3, 1 - 0.1999 - 0.3, 60)
    worst = 0.0
    for c in np.linspace(0.6, 1 - 0.1999, 25):
        for p in grid[grid <= c - 0.3]:
            q = grid[grid <= c - 0.3]
            ratio = gammaln(4 * q) + gammaln(4 * (c - q)) - gammaln(4 * p) - gammaln(4 * (c - p))
            worst = max(worst, float(np.max(ratio + 4 * np.abs(p - q) * math.log(0.99 / 0.01))))
    assert worst <= p3_theorem_1_corrected(there, 4, 0.01) * (1 + 1e-12)
    assert worst == pytest.approx(p3_theorem_1_corrected(there, 4, 0.01), rel=1e-3)


def test_the_largest_loss_may_come_before_the_largest_step():
    """With gamma near 1 / m the loss of large steps falls again. Oracle: a grid of steps."""
    there = domain(2, 0.05, 0.05, 1.0)
    steps = np.linspace(0, there.largest_step, 20_001)
    inside = 0
    for k, gamma in ((30.0, 0.3), (30.0, 0.45), (5.0, 0.4), (24.0, 0.002)):
        ratio = math.log((1 - gamma) / gamma)
        start = betaln(k * 0.05, k * 0.9)
        losses = start - betaln(k * (0.05 + steps), k * (0.9 - steps)) + k * steps * ratio
        assert p3_theorem_1_corrected(there, k, gamma) == pytest.approx(losses.max(), rel=1e-6)
        assert p3_theorem_1_corrected(there, k, gamma) >= losses.max() * (1 - 1e-12)
        inside += losses.argmax() < len(steps) - 1
    assert inside >= 1


def test_a_given_input_and_other_arguments_are_checked():
    assert p3_lemma_1(domain(), 24, 0.002, p=[0.05, 0.05]) == p3_lemma_1(domain(), 24, 0.002)
    # The worst input is at the floors (ERRATA P3.5).
    assert p3_lemma_1(domain(), 24, 0.002, p=[0.2, 0.3]) < p3_lemma_1(domain(), 24, 0.002)
    for wrong in ([0.2], [[0.2, 0.3]], "p"):
        with pytest.raises(ArgumentError, match="protected entries"):
            p3_lemma_1(domain(), 24, 0.002, p=wrong)
    for wrong in ([0.04, 0.3], [0.5, 0.4500001], [math.nan, 0.3]):
        with pytest.raises(DataError) as caught:
            p3_lemma_1(domain(), 24, 0.002, p=wrong)
        assert "0.04" not in str(caught.value)
    for arguments, message in (((24, 0.01, 4), "1, 2 and 3"), ((24, 0.01, 3), "alpha")):
        k, gamma, number = arguments
        with pytest.raises(ArgumentError, match=message):
            p3_theorem(domain(), k, gamma, number=number)
    with pytest.raises(ArgumentError, match="gamma < 1 / n_protected"):
        p3_lemma_1(domain(), 24, 0.5)
    with pytest.raises(UnattainableError, match="Raise k or eta"):
        p3_problem_14(domain(), 1e-3, 1e-6)
