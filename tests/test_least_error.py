"""The linear programme of the page on the limit, against closed forms and another programme."""

import importlib
import math

import numpy as np
import pytest
from least_error import least_error
from scipy.special import betaln, entr, rel_entr

from tests.sources import DOCS


def entropy(p):
    return float(entr(p) + entr(1 - p))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 0.4])
def test_one_record_is_randomised_response(epsilon, delta):
    """The best one tells the record with probability delta (Kairouz, Oh and Viswanath 2015, Theorem 1)."""
    expected = (1 - delta) * entropy(1 / (1 + math.exp(epsilon)))
    assert least_error(epsilon, delta, [2, 2], 1) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.2, 0.2), (3.0, 0.5)])
def test_without_a_budget_nothing_is_known_but_the_prior(prior):
    """The error is that of the prior's mean, which no count enters."""
    a, b = prior
    x = np.arange(9)
    weights = np.exp(betaln(x + a, 8 - x + b) - betaln(x + 1, 9 - x)) / 9 / math.exp(betaln(a, b))
    assert weights.sum() == pytest.approx(1)
    expected = entropy(a / (a + b)) - sum(w * entropy(k / 8) for w, k in zip(weights, x, strict=True))
    assert least_error(1e-9, 0.0, prior, 8) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize(("n", "prior"), [(15, (1, 1)), (9, (3, 0.5))])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_geometric_noise_with_the_posterior_mean_reaches_it(n, prior, epsilon):
    """Outputs below 0 say what 0 says, and those above n what n says."""
    x, q = np.arange(n + 1), math.exp(-epsilon)
    channel = (1 - q) / (1 + q) * q ** np.abs(x - x[:, None])
    channel[:, [0, -1]] /= 1 - q
    logs = betaln(x + prior[0], n - x + prior[1]) - betaln(x + 1, n - x + 1)
    joint = (np.exp(logs) / np.exp(logs).sum())[:, None] * channel
    mass, mean = joint.sum(axis=0), x / n @ joint / joint.sum(axis=0)
    reached = sum(joint[k] @ (rel_entr(k / n, mean) + rel_entr(1 - k / n, 1 - mean)) for k in x)
    assert mass.sum() == pytest.approx(1)
    assert least_error(epsilon, 0.0, prior, n) == pytest.approx(reached, rel=2e-5)


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("best_possible")


def test_what_the_page_says_of_its_figures(page):
    ratios = {
        (title, name): np.divide(line, errors["optimum of all mechanisms"])
        for title, errors in page.lines().items()
        for name, line in errors.items()
    }
    assert {len(line) for line in ratios.values()} == {len(page.EPSILONS)}
    from_1 = page.EPSILONS.index(1)
    independent = np.concatenate([ratios[title, "independent noise, estimated"] for title in page.TABLES])
    assert (round(independent.min(), 2), round(independent.max(), 1)) == (1.03, 4.8)
    for title in page.TABLES:
        assert np.abs(ratios[title, "zero-sum noise, estimated"] - 1).max() < 2e-4
        assert (ratios[title, "posterior draw, not private"][from_1 + 1 :] > 2).all()
        draw, given_noise = (ratios[title, name] for name in list(page.STYLES)[1:3])
        assert draw[0] < given_noise[0]
        assert (draw[from_1:] > given_noise[from_1:]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.2, 2])
@pytest.mark.parametrize("title", ["10 records, prior 1", "20 records, prior 0.2"])
def test_figures_of_the_page_are_what_the_library_computes(page, title, epsilon):
    errors = page.Table(*page.TABLES[title]).errors(epsilon)
    stored = {name: line[page.EPSILONS.index(epsilon)] for name, line in page.lines()[title].items()}
    assert errors == pytest.approx(stored, rel=2e-5)
