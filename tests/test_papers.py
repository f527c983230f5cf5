"""The table of the papers' statements, and figures of P1, P2 and P4 as numbers."""

import doctest
import math
import re
from functools import reduce
from pathlib import Path

import numpy as np
import printed_p1
import printed_p2
import printed_p3
import printed_p4
import pytest
from scipy.special import gammaln, rel_entr
from scipy.stats import norm

import pymc_dirdp as dirdp

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "papers.md").read_text()
TABLE = PAGE[PAGE.index("| Statement |") :].split("\n\n", maxsplit=1)[0]
# Statement, function and verdict of each row.
ROWS = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in TABLE.splitlines()[2:]]
NAMED = sorted({name for _, functions, _ in ROWS for name in re.findall(r"`([\w.]+)`", functions)})
# What is printed and used for no release.
PRINTED = (printed_p1, printed_p2, printed_p3, printed_p4)
# Where the table's names are looked for.
ROOMS = (dirdp, dirdp.papers, dirdp.mechanisms, dirdp.planning)
OTHER_TESTS = "\n".join(
    path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")) if path != Path(__file__)
)


def test_every_row_has_a_statement_a_function_and_a_verdict():
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 3, row
        statement, functions, verdict = row
        assert re.match(r"P[1-4] |P[1-4], ", statement), statement
        assert functions == "none" or re.fullmatch(r"`[\w.]+`(, `[\w.]+`)*", functions), functions
        assert re.match(r"\*(agrees|corrected|misleading|refused)\*", verdict), verdict
        # Only what is refused may have no function.
        assert functions != "none" or verdict.startswith("*refused*")


def test_every_function_of_the_table_exists_and_is_tested():
    words = set(re.findall(r"\w+", OTHER_TESTS))
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


def dirichlet_renyi(order, u, v):
    def log_beta(z):
        return gammaln(z).sum() - gammaln(z.sum())

    mixed = order * u - (order - 1) * v
    return (log_beta(mixed) - order * log_beta(u) + (order - 1) * log_beta(v)) / (order - 1)


@pytest.mark.parametrize("order", [2, 20, 200])
@pytest.mark.parametrize("r", [0.01, 0.1, 1.0])
def test_p1_figure_3(order, r):
    """Neighbours of its kind that do differ by one moved record, with the larger one of each cell empty elsewhere."""
    alpha = np.full(6, 1 + 4 * (order - 1) * r)
    bound = dirdp.papers.p1_theorem_1(order=order, r=r, alpha_min=alpha[0]).epsilon
    exact = dirdp.mechanisms.DirichletMechanism(alpha, r).renyi(order)
    shown = np.array([11.0, 8, 65, 25, 38, 1]), np.array([11.0, 9, 65, 25, 38, 0])
    worst = np.array([0.0, 0, 65, 25, 38, 1]), np.array([0.0, 1, 65, 25, 38, 0])
    (of_shown, of_worst) = (dirichlet_renyi(order, r * x + alpha, r * y + alpha) for x, y in (shown, worst))
    assert of_shown < of_worst
    assert of_worst == pytest.approx(exact, rel=1e-6)
    assert exact < bound < 1.5 * exact


def test_p2_figure_1():
    x, y = np.array([11.0, 8, 65, 25, 38, 0]), np.array([11.0, 8, 65, 25, 38, 1])
    for a in (1.5, 2.0, 5.0, 20.0):
        bound = dirdp.papers.p2_theorem_1(gamma=1.0, alpha_min=a, delta_2_squared=1.0).rho
        exact = dirdp.mechanisms.DirichletMechanism(np.full(6, a), 1.0, adjacency="add-remove").rho(2.0)
        shown = max(dirichlet_renyi(2, x + a, y + a), dirichlet_renyi(2, y + a, x + a)) / 2
        assert 0.9 * exact < shown < exact < bound
        # The other cells hold the rest, and with more of it the pair of the figure becomes the worst one.
        more = x + [1e9, 0, 0, 0, 0, 0], y + [1e9, 0, 0, 0, 0, 0]
        assert dirichlet_renyi(2, more[0] + a, more[1] + a) / 2 <= exact * (1 + 1e-5)
    # psi'(1) / 2
    assert dirdp.papers.p2_theorem_1(gamma=1.0, alpha_min=2.0, delta_2_squared=1.0).rho == pytest.approx(
        math.pi**2 / 12
    )


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


@pytest.mark.parametrize(("prior", "n"), [(np.ones(10), 1000), (np.full(10, 0.2), 1000), (np.ones(4), 200)])
def test_the_clipping_of_p1_and_not_the_noise(prior, n):
    """Expected divergences from the frequencies at (5, 0.1)-Rényi differential privacy: clipped, the draw, smoothed."""
    target = dirdp.RenyiDP(order=5, epsilon=0.1)
    planned = dirdp.calibrate(target, prior=prior, n_records=n, objective="estimate")
    drawn = dirdp.expected_error(target, prior=prior, n_records=n, objective="estimate")
    assert planned.satisfies(target)
    rng = np.random.default_rng(6)
    data = rng.multinomial(n, rng.dirichlet(prior, 3000))
    sigma = printed_p1.p1_gaussian_sigma(order=5, epsilon=0.1)
    noisy = data + rng.normal(0, sigma, data.shape)
    smooth = np.maximum(noisy, 0) + sigma / 4
    clipped, smoothed = (
        rel_entr(data / n, y).sum(axis=1).mean()
        for y in (printed_p1.p1_equation_12(noisy), smooth / smooth.sum(axis=1, keepdims=True))
    )
    assert smoothed < drawn
    assert clipped > 1.5 * smoothed


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
    # Nor is it for a larger prior, or for ten records.
    for prior, n_records in (([10, 10], 100), ([50, 50], 100), (flat, 10)):
        hellinger = dirdp.papers.HellingerMechanism.for_guarantee(one, prior=prior, n_records=n_records)
        fair = dirdp.papers.p4_ilap_mech(epsilon=1.0, prior=prior, n_records=n_records)
        balanced = [n_records // 2, n_records // 2]
        assert hellinger.expected_distance(balanced) > fair.expected_distance(balanced)
    # By simulation, for the rarest event.
    counts = np.array([3, n - 3])
    outcomes, distribution = calibrated.distribution(counts)
    drawn = outcomes[np.random.default_rng(2).choice(len(distribution), 4000, p=distribution / distribution.sum())] + 1
    truth = counts + 1
    middle = (drawn + truth) / 2

    def log_beta(z):
        return gammaln(z).sum(axis=-1) - gammaln(z.sum(axis=-1))

    distance = np.sqrt(-np.expm1(log_beta(middle) - (log_beta(drawn) + log_beta(truth)) / 2))
    assert distance.mean() == pytest.approx(0.782, abs=5 * distance.std() / math.sqrt(4000))


@pytest.mark.parametrize("n", [2, 1000])
def test_one_person_moves_an_optimal_policy_by_all_that_there_is(n):
    """One state, two actions, mean rewards of n people: the data move by 2e-9 of one reward, the policy by 2."""

    def policy(shift):
        # Both actions have the same mean but for the last person.
        rewards = np.array([(n - 1) * 0.5 + 0.5 + shift, n * 0.5]) / n
        return np.eye(2)[rewards.argmax()]

    assert np.abs(policy(1e-9) - policy(-1e-9)).sum() == 2
    # P3's neighbours differ by at most 1, and the entries of its inputs are above a floor.
    with pytest.raises(dirdp.errors.ArgumentError, match="at most 1"):
        dirdp.papers.SimplexDomain(2, eta=0.1, etabar=0.1, b=2.0)
    with pytest.raises(dirdp.errors.ArgumentError, match="eta"):
        dirdp.papers.SimplexDomain(2, eta=0.0, etabar=0.1, b=1.0)
