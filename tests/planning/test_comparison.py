"""The same guarantee for every mechanism: scores against closed forms, and what the errata say."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import linprog

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.comparison import compare, published_shares
from pymc_dirdp.planning.expected_kl import PriorExpectedKL

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def six():
    return compare(TARGET, prior=np.ones(6), n_records=1283, simulations=300, public=["n_records"])


def row(comparison, name):
    return next(score for score in comparison.scores if score.mechanism == name)


def test_scores_are_the_closed_forms_and_say_what_the_errata_say(six):
    """Oracle: a priori expectations without simulation. Theory, section 9, and ERRATA P1.6."""
    mechanism = dirdp.calibrate(TARGET, prior=np.ones(6), n_records=1283)
    expected = PriorExpectedKL(np.ones(6), 1283)
    s = float(mechanism.alpha[0]) - 1
    posterior, estimate = (row(six, f"Dirichlet, optimal for the {name}") for name in ("posterior", "estimate"))
    assert posterior.kl_posterior == pytest.approx(expected.posterior(mechanism.r, s), rel=1e-9)
    assert posterior.kl_estimate == pytest.approx(expected.estimate(mechanism.r, s), rel=1e-9)
    # The objective decides what is small.
    assert posterior.kl_posterior < estimate.kl_posterior
    assert estimate.kl_estimate < posterior.kl_estimate
    # Noise is better on a small table, and clipping hides it.
    smooth = row(six, "Gaussian, clip-and-smooth").kl_estimate
    assert smooth < min(estimate.kl_estimate, row(six, "Gaussian, clip").kl_estimate)
    # The posterior itself loses nothing.
    assert (six.baseline.mechanism, six.baseline.kl_posterior) == ("posterior, not private", 0)
    assert min(score.kl_posterior for score in six.scores) >= 0
    assert max(score.hellinger for score in six.scores) <= 1


def test_a_comparison_is_text_html_and_a_frame(six):
    """The text fits a terminal, and the frame has the rest."""
    assert str(six).startswith("(1, 1e-06)-differential privacy, replace-one; a priori")
    assert max(map(len, str(six).splitlines()[:-1])) <= 80
    assert len(repr(six)) <= 140
    assert "<table>" in six._repr_html_()
    frame = six.frame()
    assert list(frame.columns) == ["parameters", "kl_posterior", "kl_draw", "kl_estimate", "l_inf", "hellinger", "pure"]
    assert len(frame) == len(six.scores) + 1


def test_exact_accounting_beats_algorithm_1():
    comparison = compare(dirdp.RenyiDP(order=5, epsilon=0.1), prior=np.ones(6), n_records=1283, simulations=20)
    exact = row(comparison, "Dirichlet, optimal for the estimate").kl_estimate
    assert 1.1 < row(comparison, "Dirichlet, algorithm-1").kl_estimate / exact < 4


def test_who_cannot_keep_a_guarantee_is_named():
    pure = compare(dirdp.PureDP(epsilon=1.0), prior=np.ones(3), n_records=50, simulations=20, public=["n_records"])
    assert {"Dirichlet, algorithm-1", "Gaussian, clip"} <= set(pure.unattainable)
    assert {score.mechanism.split(",")[0] for score in pure.scores} == {"Geometric"}
    assert all(score.pure for score in pure.scores)
    assert "not attainable: Dirichlet" in str(pure)


def test_errors_are_averaged_over_rows_and_divergences_of_posteriors_added():
    """Four rows of 100 records each, as one row four times. The same call gives the same scores."""
    target = dirdp.RenyiDP(order=4, epsilon=1.0)
    four = compare(target, prior=np.ones((4, 3)), n_records=400, simulations=150)
    assert four == compare(target, prior=np.ones((4, 3)), n_records=400, simulations=150)
    one = compare(target, prior=np.ones(3), n_records=100, simulations=600)
    for name in ("Dirichlet, temper", "Gaussian, clip-and-smooth"):
        assert row(four, name).kl_estimate == pytest.approx(row(one, name).kl_estimate, rel=0.2)
        assert row(four, name).l_inf == pytest.approx(row(one, name).l_inf, rel=0.2)
        assert row(four, name).kl_posterior == pytest.approx(4 * row(one, name).kl_posterior, rel=0.2)
    with pytest.raises(dirdp.errors.ArgumentError, match="n_records"):
        compare(target, prior=np.ones((3, 2)), n_records=2)


def test_where_noise_leaves_no_record_all_categories_are_equally_frequent():
    prior, data = np.ones(4), np.full((200, 4), 1)
    mechanism = dirdp.mechanisms.GeometricMechanism(prior, 50.0, postprocess="project")
    frequencies = published_shares(mechanism, mechanism.prior, data, np.random.default_rng(20261122))
    np.testing.assert_allclose(frequencies.sum(axis=-1), 1.0, rtol=1e-12)
    empty = np.all(frequencies == 0.25, axis=-1)
    # A negative total has about an even chance, and noise that is not cut leaves no row flat.
    assert 60 < empty.sum() < 140


# Questions that differ in every option: each is asked of all functions that answer it.
RENYI = dirdp.RenyiDP(order=4, epsilon=0.5)
KNOWN = {"public": ["n_records"]}
QUESTIONS = [
    ({"prior": [1.626, 0.453], "n_records": 200, **KNOWN}, TARGET),
    ({"prior": [1.626, 0.453], "n_records": 200}, TARGET),
    pytest.param({"prior": np.ones((3, 2)), "n_records": 90, "adjacency": "add-remove"}, RENYI, marks=pytest.mark.slow),
    pytest.param(
        {"prior": np.ones(4), "n_records": 592, "contribution": 2, "min_count": 4.0, "released_draws": 3, **KNOWN},
        RENYI,
        marks=pytest.mark.slow,
    ),
]
ROWS = {
    "Dirichlet, optimal for the posterior": {},
    "Dirichlet, optimal for the estimate": {"objective": "estimate"},
    "Dirichlet, temper": {"mechanism": Dirichlet(strategy="temper")},
    "Gaussian, clip-and-smooth": {"mechanism": "gaussian"},
    "Geometric, clip-and-smooth": {"mechanism": "geometric"},
}


def planned(guarantee, question, asked):
    """The part of a plan that answers the same question; what is public under replace-one is public in a plan."""
    prior = np.asarray(question["prior"], dtype=float)
    counts = np.zeros(prior.shape, dtype=int)
    counts[..., 0] = question["n_records"] // counts[..., 0].size
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=prior, shape=prior.shape)
        pm.Multinomial("y", n=counts.sum(axis=-1), p=p, observed=counts)
    left_out = {"prior", "public"} | ({"n_records"} if "public" in question else set())
    options = {name: value for name, value in question.items() if name not in left_out}
    (part,) = dirdp.plan(guarantee, model, **options, **asked).parts
    return part


@pytest.mark.parametrize(("question", "guarantee"), QUESTIONS)
def test_every_function_answers_the_same_question_alike(question, guarantee):
    """Bit for bit: `expected_error` took a number for public that `calibrate` did not, .0409 beside .0583 (W4)."""
    compared = compare(guarantee, **question, simulations=10)
    in_a_plan = "public" in question or "adjacency" in question
    for name, asked in ROWS.items():
        mechanism = dirdp.calibrate(guarantee, **question, **asked)
        score = row(compared, name)
        assert score.parameters == mechanism.summary
        # What is optimal for an objective is another mechanism for another one.
        for objective, found in (("posterior", score.kl_posterior), ("estimate", score.kl_draw)):
            if asked.get("objective", "posterior") == objective or "mechanism" in asked:
                assert dirdp.expected_error(guarantee, **question, **(asked | {"objective": objective})) == found
        kind, others = asked.get("mechanism", "dirichlet"), {k: v for k, v in asked.items() if k != "mechanism"}
        frontier = dirdp.privacy_utility([guarantee], **question, mechanisms=[kind], **others)
        error = score.kl_draw if asked.get("objective") == "estimate" else score.kl_posterior
        assert frontier.expected_kl == {str(kind): (error,)}
        if in_a_plan:
            assert planned(guarantee, question, asked).mechanism == mechanism
    chosen = dirdp.calibrate(guarantee, **question, mechanism="auto")
    error = dirdp.expected_error(guarantee, **question, mechanism="auto", of="estimate")
    assert dirdp.calibrate(guarantee, **question, mechanism=chosen.kind) == chosen
    assert dirdp.expected_error(guarantee, **question, mechanism=chosen.kind, of="estimate") == error
    if in_a_plan:
        part = planned(guarantee, question, {"mechanism": "auto"})
        assert part.mechanism == chosen
        assert part.choice.expected_kl[0] == (chosen.kind, error)


@pytest.mark.parametrize("name", ["mechanism", "objective"])
def test_what_is_compared_is_not_asked_for(name):
    with pytest.raises(dirdp.errors.ArgumentError, match=f"leave {name}= out"):
        compare(TARGET, prior=[1, 1], n_records=10, **{name: "geometric"})


# Tables of few records in three cells: the exact optimum over all mechanisms, by a linear program over extreme rays.


def tables_of(n, d):
    return [x for x in itertools.product(range(n + 1), repeat=d) if sum(x) == n]


def half_distance(x, z):
    return int(np.abs(np.subtract(x, z)).sum()) / 2


def extreme_rays(tables):
    """The integers f of all rays `exp(epsilon f)`: neighbours differ by 1 at most, and those that do connect all."""
    pairs = itertools.combinations(range(len(tables)), 2)
    edges = [(i, j) for i, j in pairs if half_distance(tables[i], tables[j]) == 1]
    found = set()

    def grow(f):
        if len(f) == len(tables):
            tight = [(i, j) for i, j in edges if abs(f[i] - f[j]) == 1]
            reached = {0}
            for _ in tables:
                reached |= {b for i, j in tight for a, b in ((i, j), (j, i)) if a in reached}
            if len(reached) == len(tables):
                found.add(tuple(value - min(f) for value in f))
            return
        near = [f[i] for i, j in edges if j == len(f)]
        for value in range(max(near) - 1, min(near) + 2):
            grow((*f, value))

    grow((0,))
    return found


TWO = tables_of(2, 3)
RAYS = extreme_rays(TWO)
assert len(RAYS) == 56


def divergence(columns, tables):
    """The expected divergence of the mean from the frequencies if the outputs have these columns, with a flat prior."""
    shares = np.array(tables) / sum(tables[0])
    joint = columns / len(tables)
    means = joint.T @ shares / joint.sum(axis=0)[:, None]
    logs = np.where(shares[:, None] > 0, shares[:, None] * np.log(np.where(shares > 0, shares, 1)[:, None] / means), 0)
    return np.sum(joint * logs.sum(axis=2), axis=0)


def zero_sum_columns(tables, epsilon, reach=30):
    """Those of zero-sum geometric noise, with equal outcomes taken together: centres beyond the tables are as near."""
    n, d = sum(tables[0]), len(tables[0])
    found = {}
    noise = [z for z in itertools.product(range(-reach, reach + 1), repeat=d - 1) if abs(sum(z)) <= reach]
    mass = np.array([math.exp(-epsilon * half_distance((*z, -sum(z)), [0] * d)) for z in noise]).sum()
    for z in noise:
        centre = (*z, n - sum(z))
        column = np.array([math.exp(-epsilon * half_distance(x, centre)) / mass for x in tables])
        clipped = tuple(np.clip(centre, 0, n).tolist())
        found[clipped] = found.get(clipped, 0) + column
    return np.stack(list(found.values()), axis=1)


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.3, 1.001), (1.0, 1.018), (3.0, 1.068)])
def test_three_cells_have_an_exact_optimum_that_zero_sum_noise_nearly_attains(epsilon, ratio):
    """The least possible error: how far zero-sum noise is from the best of all mechanisms."""
    columns = np.exp(epsilon * np.array(sorted(RAYS), dtype=float)).T
    best = linprog(divergence(columns, TWO), A_eq=columns, b_eq=np.ones(len(TWO)))
    assert best.status == 0
    noise = zero_sum_columns(TWO, epsilon, reach=math.ceil(20 / epsilon) if epsilon > 0.5 else 60)
    np.testing.assert_allclose(noise.sum(axis=1), 1, atol=1e-6)
    assert divergence(noise, TWO).sum() / best.fun == pytest.approx(ratio, abs=6e-4)
