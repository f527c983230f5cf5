"""The same guarantee for every mechanism: scores against closed forms, and what the errata say."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import linprog
from scipy.special import betaln, entr, rel_entr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.comparison import compare, optimal_error
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, ZeroCDP

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
SIX = compare(TARGET, prior=np.ones(6), n_records=1283, simulations=600, public_totals=True)


def row(comparison, name):
    return next(score for score in comparison.scores if score.mechanism == name)


def test_dirichlet_scores_are_the_closed_forms():
    """Oracle: a priori expectations without simulation."""
    mechanism = dirdp.calibrate(TARGET, prior=np.ones(6), n_records=1283)
    expected = PriorExpectedKL(np.ones(6), 1283)
    s = float(mechanism.alpha[0]) - 1
    score = row(SIX, "Dirichlet, optimal for the posterior")
    assert score.kl_posterior == pytest.approx(expected.posterior(mechanism.r, s), rel=1e-9)
    assert score.kl_estimate == pytest.approx(expected.estimate(mechanism.r, s), rel=1e-9)


def test_the_objective_decides_what_is_small():
    posterior = row(SIX, "Dirichlet, optimal for the posterior")
    estimate = row(SIX, "Dirichlet, optimal for the estimate")
    assert posterior.kl_posterior < estimate.kl_posterior
    assert estimate.kl_estimate < posterior.kl_estimate


def test_noise_is_better_on_a_small_table_and_clipping_hides_it():
    """Theory, section 9, and ERRATA P1.6: stated honestly by the numbers."""
    best = row(SIX, "Dirichlet, optimal for the estimate").kl_estimate
    assert row(SIX, "Gaussian, clip-and-smooth").kl_estimate < best
    assert row(SIX, "Gaussian, clip").kl_estimate > row(SIX, "Gaussian, clip-and-smooth").kl_estimate


def test_exact_accounting_beats_algorithm_1():
    comparison = compare(dirdp.RenyiDP(order=5, epsilon=0.1), prior=np.ones(6), n_records=1283)
    exact = row(comparison, "Dirichlet, optimal for the estimate").kl_estimate
    published = row(comparison, "Dirichlet, algorithm-1").kl_estimate
    assert 1.1 < published / exact < 4


def test_who_cannot_keep_a_guarantee_is_named():
    pure = compare(dirdp.PureDP(epsilon=1.0), prior=np.ones(3), n_records=50, simulations=20, public_totals=True)
    assert "Dirichlet, algorithm-1" in pure.unattainable
    assert "Gaussian, clip" in pure.unattainable
    kinds = {
        "Dirichlet",
        "Geometric",
    }
    assert {score.mechanism.split(",")[0] for score in pure.scores} == kinds
    assert all(score.pure for score in pure.scores)
    assert "not attainable: Dirichlet" in str(pure)


def test_the_posterior_itself_is_the_last_and_loses_nothing():
    last = SIX.baseline
    assert last.mechanism == "posterior, not private"
    assert last.kl_posterior == 0
    assert min(score.kl_posterior for score in SIX.scores) >= 0


def test_a_comparison_is_text_html_and_a_frame():
    assert str(SIX).startswith("(1, 1e-06)-differential privacy, replace-one; a priori")
    assert "<table>" in SIX._repr_html_()
    frame = SIX.frame()
    assert list(frame.columns) == ["parameters", "kl_posterior", "kl_draw", "kl_estimate", "l_inf", "hellinger", "pure"]
    assert len(frame) == len(SIX.scores) + 1
    assert np.all(frame["hellinger"] <= 1)


def test_the_same_call_gives_the_same_scores_and_rows_are_allowed():
    options = {"prior": np.ones((3, 2)), "n_records": 90, "simulations": 20, "adjacency": "add-remove"}
    first, second = compare(TARGET, **options), compare(TARGET, **options)
    assert first == second
    assert all(math.isfinite(score.l_inf) for score in first.scores)
    with pytest.raises(dirdp.errors.ArgumentError, match="n_records"):
        compare(TARGET, prior=np.ones((3, 2)), n_records=2)


@pytest.mark.thorough
def test_errors_are_averaged_over_rows_and_divergences_of_posteriors_added():
    """Four rows of 100 records each, as one row four times; ten per cent for 600 data sets."""
    target = dirdp.RenyiDP(order=4, epsilon=1.0)
    four = compare(target, prior=np.ones((4, 3)), n_records=400, simulations=300)
    one = compare(target, prior=np.ones(3), n_records=100, simulations=1200)
    for name in ("Dirichlet, temper", "Gaussian, clip-and-smooth"):
        assert row(four, name).kl_estimate == pytest.approx(row(one, name).kl_estimate, rel=0.15)
        assert row(four, name).l_inf == pytest.approx(row(one, name).l_inf, rel=0.15)
        assert row(four, name).kl_posterior == pytest.approx(4 * row(one, name).kl_posterior, rel=0.15)


def test_where_noise_leaves_no_record_all_categories_are_equally_frequent():
    prior, data = np.ones(4), np.full((200, 4), 1)
    mechanism = dirdp.mechanisms.GeometricMechanism(prior, 50.0, postprocess="project")
    frequencies = mechanism.published_shares(data, np.random.default_rng(20261122))
    np.testing.assert_allclose(frequencies.sum(axis=-1), 1.0, rtol=1e-12)
    empty = np.all(frequencies == 0.25, axis=-1)
    # A negative total has about an even chance, and noise that is not cut leaves no row flat.
    assert 60 < empty.sum() < 140


# Questions that differ in every option: each is asked of all functions that answer it.
QUESTIONS = [
    ({"prior": [1.626, 0.453], "n_records": 200, "public_totals": True}, "ApproxDP"),
    ({"prior": [1.626, 0.453], "n_records": 200}, "ApproxDP"),
    pytest.param(
        {"prior": np.ones((3, 2)), "n_records": 90, "adjacency": "add-remove"}, "RenyiDP", marks=pytest.mark.slow
    ),
    pytest.param(
        {"prior": np.ones(4), "n_records": 592, "contribution": 2, "public_totals": True, "draws": 3},
        "RenyiDP",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"prior": np.full(3, 0.5), "n_records": 300, "min_count": 4.0, "public_totals": True},
        "TruncatedCDP",
        marks=pytest.mark.slow,
    ),
]
GUARANTEES = {
    "ApproxDP": TARGET,
    "RenyiDP": dirdp.RenyiDP(order=4, epsilon=0.5),
    "TruncatedCDP": dirdp.TruncatedCDP(rho=0.1, omega=5),
}
ROWS = {
    "Dirichlet, optimal for the posterior": {},
    "Dirichlet, optimal for the estimate": {"objective": "estimate"},
    "Dirichlet, temper": {"mechanism": Dirichlet(strategy="temper")},
    "Gaussian, clip-and-smooth": {"mechanism": "gaussian"},
    "Geometric, clip-and-smooth": {"mechanism": "geometric"},
}


def model_of(question):
    """The model whose plan asks the same question."""
    prior = np.asarray(question["prior"], dtype=float)
    counts = np.zeros(prior.shape, dtype=int)
    counts[..., 0] = question["n_records"] // counts[..., 0].size
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=prior, shape=prior.shape)
        pm.Multinomial("y", n=counts.sum(axis=-1), p=p, observed=counts)
    return model


@pytest.mark.parametrize(("question", "kind"), QUESTIONS)
def test_every_function_answers_the_same_question_alike(question, kind):
    """Bit for bit: `expected_error` took a number for public that `calibrate` did not, .0409 beside .0583 (W4)."""
    guarantee = GUARANTEES[kind]
    compared = compare(guarantee, **question, simulations=10)
    planned = {key: question[key] for key in ("adjacency", "contribution", "draws", "min_count") if key in question}
    public = question.get("public_totals", False)
    if question.get("adjacency") == "add-remove":
        planned["n_records"] = question["n_records"]
    for name, asked in ROWS.items():
        mechanism = dirdp.calibrate(guarantee, **question, **asked)
        score = row(compared, name)
        assert score.parameters == mechanism.in_short
        # What is optimal for an objective is another mechanism for another one.
        for objective, found in (("posterior", score.kl_posterior), ("estimate", score.kl_draw)):
            if asked.get("objective", "posterior") == objective or set(asked) & {"mechanism", "strategy"}:
                assert dirdp.expected_error(guarantee, **question, **(asked | {"objective": objective})) == found
        kind_asked = asked.get("mechanism", "dirichlet")
        others = {key: value for key, value in asked.items() if key != "mechanism"}
        frontier = dirdp.privacy_utility([guarantee], **question, mechanisms=[kind_asked], **others)
        error = score.kl_draw if asked.get("objective") == "estimate" else score.kl_posterior
        assert frontier.expected_kl == {str(kind_asked): (error,)}
        # What is public under replace-one is public in a plan.
        if public or "adjacency" in question:
            (part,) = dirdp.plan(guarantee, model_of(question), **planned, **asked).parts
            assert part.mechanism == mechanism
    options = {**question, "mechanism": "auto"}
    chosen = dirdp.calibrate(guarantee, **options)
    error = dirdp.expected_error(guarantee, **options, of="estimate")
    assert dirdp.calibrate(guarantee, **question, mechanism=chosen.kind) == chosen
    assert dirdp.expected_error(guarantee, **question, mechanism=chosen.kind, of="estimate") == error
    if public or "adjacency" in question:
        (part,) = dirdp.plan(guarantee, model_of(question), **planned, mechanism="auto").parts
        assert part.mechanism == chosen
        assert part.choice.expected_kl[0] == (chosen.kind, error)


@pytest.mark.parametrize("name", ["mechanism", "objective"])
def test_what_is_compared_is_not_asked_for(name):
    with pytest.raises(dirdp.errors.ArgumentError, match=f"leave {name}= out"):
        compare(TARGET, prior=[1, 1], n_records=10, **{name: "geometric"})


def test_it_fits_a_terminal_and_the_frame_has_the_rest():
    table = str(SIX).splitlines()
    assert max(map(len, table[:-1])) <= 80
    assert {"parameters", "l_inf", "hellinger", "pure"} <= set(SIX.frame().columns)
    assert len(repr(SIX)) <= 140


def test_every_kind_that_a_plan_can_name_is_the_kind_of_its_class():
    """One was listed by another name, and was found only because this room had imported it before."""
    code = "from pymc_dirdp.mechanisms import registry as r\nassert all(r.by_kind(k).kind == k for k in r.kinds())"
    subprocess.run([sys.executable, "-c", code], check=True)


def entropy(p):
    return float(entr(p) + entr(1 - p))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.4])
def test_one_record_is_randomised_response(epsilon, delta):
    """The best one tells the record with probability delta (Kairouz, Oh and Viswanath 2015, Theorem 1)."""
    expected = (1 - delta) * entropy(1 / (1 + math.exp(epsilon)))
    assert optimal_error(ApproxDP(epsilon=epsilon, delta=delta), prior=[2, 2], n_records=1) == pytest.approx(
        expected, rel=2e-5
    )


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.2, 0.2), (3.0, 0.5)])
def test_without_a_budget_nothing_is_known_but_the_prior(prior):
    """The error is that of the prior's mean, which no count enters."""
    a, b = prior
    x = np.arange(9)
    weights = np.exp(betaln(x + a, 8 - x + b) - betaln(x + 1, 9 - x)) / 9 / math.exp(betaln(a, b))
    assert weights.sum() == pytest.approx(1)
    expected = entropy(a / (a + b)) - sum(w * entropy(k / 8) for w, k in zip(weights, x, strict=True))
    assert optimal_error(PureDP(epsilon=1e-9), prior=prior, n_records=8) == pytest.approx(expected, rel=2e-5)


def on_a_grid(n, prior, epsilon, delta, points=120):
    """The least error among mechanisms whose outputs are on a grid, one constraint after another."""
    ys = np.sin((np.arange(points) + 0.5) * math.pi / 2 / points) ** 2
    x = np.arange(n + 1)
    logs = betaln(x + prior[0], n - x + prior[1]) - betaln(x + 1, n - x + 1)
    weights = np.exp(logs) / np.exp(logs).sum()
    p = (x / n)[:, None]
    cost = weights[:, None] * (rel_entr(p, ys) + rel_entr(1 - p, 1 - ys))
    pairs = [(k, k + 1) for k in range(n)] + [(k + 1, k) for k in range(n)]
    probabilities, excesses = (n + 1) * points, len(pairs) * points
    upper, bounds = np.zeros((excesses + len(pairs), probabilities + excesses)), np.zeros(excesses + len(pairs))
    for i, (first, second) in enumerate(pairs):
        for j in range(points):
            row = i * points + j
            upper[row, first * points + j] = 1
            upper[row, second * points + j] = -math.exp(epsilon)
            upper[row, probabilities + row] = -1
        upper[excesses + i, probabilities + i * points : probabilities + (i + 1) * points] = 1
        bounds[excesses + i] = delta
    sums = np.zeros((n + 1, probabilities + excesses))
    for k in range(n + 1):
        sums[k, k * points : (k + 1) * points] = 1
    costs = np.concatenate([cost.ravel(), np.zeros(excesses)])
    return linprog(costs, A_ub=upper, b_ub=bounds, A_eq=sums, b_eq=np.ones(n + 1)).fun


@pytest.mark.parametrize(
    ("n", "prior", "epsilon", "delta"),
    [(3, (1, 1), 1.0, 0.0), (5, (0.2, 0.7), 0.4, 1e-3), (4, (3, 0.5), 2.0, 0.2), (5, (1, 1), 0.0, 0.1)],
)
def test_another_programme_agrees(n, prior, epsilon, delta):
    """That one looks at fewer mechanisms, so its optimum is slightly larger."""
    guarantee = ApproxDP(epsilon=epsilon, delta=delta) if delta else PureDP(epsilon=epsilon)
    found = optimal_error(guarantee, prior=prior, n_records=n)
    other = on_a_grid(n, prior, epsilon, delta)
    assert found * (1 - 1e-6) <= other <= found + 2e-4


@pytest.mark.parametrize(("n", "prior"), [(15, (1, 1)), (20, (0.2, 0.2)), (9, (3, 0.5))])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
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
    assert optimal_error(PureDP(epsilon=epsilon), prior=prior, n_records=n) == pytest.approx(reached, rel=2e-5)


def test_a_looser_guarantee_and_more_records_help():
    errors = [optimal_error(PureDP(epsilon=e), prior=[1, 1], n_records=12) for e in (0.05, 0.3, 1, 3, 8)]
    assert errors == sorted(errors, reverse=True)
    sizes = [optimal_error(PureDP(epsilon=1), prior=[1, 1], n_records=n) for n in (2, 5, 12, 30)]
    assert sizes == sorted(sizes, reverse=True)
    deltas = [optimal_error(ApproxDP(epsilon=1, delta=d), prior=[1, 1], n_records=12) for d in (1e-9, 1e-3, 0.1, 0.9)]
    assert deltas == sorted(deltas, reverse=True)


def test_which_cell_is_the_first_does_not_matter():
    errors = [optimal_error(PureDP(epsilon=1), prior=prior, n_records=12) for prior in ([0.3, 4], [4, 0.3])]
    assert errors[0] == pytest.approx(errors[1], rel=2e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_draw_errs_less(epsilon):
    guarantee = ApproxDP(epsilon=epsilon, delta=1e-6)
    table = {"prior": [1, 1], "n_records": 30}
    assert optimal_error(guarantee, **table) < dirdp.expected_error(guarantee, **table, objective="estimate")


@pytest.mark.parametrize(
    ("epsilon", "delta", "prior"),
    [
        (800.0, 0.0, (1, 1)),
        (20.0, 0.999, (1, 1)),
        (1.0, 1e-300, (1e-300, 1)),
        (1.0, 1e-6, (1e12, 1e-3)),
        (1.0, 1e-6, (1e-3, 1e-3)),
    ],
)
def test_extreme_numbers(epsilon, delta, prior):
    guarantee = ApproxDP(epsilon=epsilon, delta=delta) if delta else PureDP(epsilon=epsilon)
    n = 12
    assert 0 <= optimal_error(guarantee, prior=prior, n_records=n) <= entropy(prior[0] / (prior[0] + prior[1]))


def test_a_guarantee_of_next_to_nothing_lets_everything_be_known():
    assert optimal_error(PureDP(epsilon=50.0), prior=[1, 1], n_records=7) < 1e-11


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"guarantee": ZeroCDP(rho=1)}, "PureDP and ApproxDP"),
        ({"guarantee": RenyiDP(order=2, epsilon=1)}, "PureDP and ApproxDP"),
        ({"guarantee": 1.0}, "guarantee"),
        ({"prior": [1, 1, 1]}, r"shape \(3,\)"),
        ({"prior": [[1, 1]]}, r"shape \(1, 2\)"),
        ({"prior": [1, 0]}, "prior"),
        ({"n_records": 0}, "n_records"),
        ({"n_records": 101}, "100 records"),
        ({"n_records": 2.5}, "n_records"),
    ],
)
def test_what_is_refused(changed, says):
    with pytest.raises(ArgumentError, match=says):
        optimal_error(**{"guarantee": PureDP(epsilon=1), "prior": [1, 1], "n_records": 5} | changed)


def test_a_way_out_for_other_guarantees():
    implied = dirdp.privacy.convert(ZeroCDP(rho=0.1), ApproxDP, delta=1e-6)
    assert optimal_error(implied, prior=[1, 1], n_records=5) > 0


def test_a_solver_that_gives_up_is_reported(monkeypatch):
    monkeypatch.setattr("pymc_dirdp.planning.comparison._TOLERANCE", {"time_limit": 0.0})
    with pytest.raises(ArgumentError, match="no result"):
        optimal_error(ApproxDP(epsilon=0.1, delta=1e-6), prior=[1, 1], n_records=40)


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


def kernel_columns(tables, epsilon):
    kernel = np.exp(-epsilon * np.array([[half_distance(x, z) for z in tables] for x in tables]))
    return kernel * np.linalg.solve(kernel, np.ones(len(tables)))


@pytest.mark.parametrize(("n", "epsilon", "ratio"), [(2, 0.3, 1.001), (2, 1.0, 1.018), (2, 3.0, 1.068)])
def test_three_cells_have_an_exact_optimum_that_zero_sum_noise_nearly_attains(n, epsilon, ratio):
    """JOINT, section C: how far zero-sum noise is from the best of all mechanisms, by a linear program."""
    tables = tables_of(n, 3)
    rays = extreme_rays(tables)
    assert len(rays) == 56
    columns = np.exp(epsilon * np.array(sorted(rays), dtype=float)).T
    best = linprog(divergence(columns, tables), A_eq=columns, b_eq=np.ones(len(tables)))
    assert best.status == 0
    noise = zero_sum_columns(tables, epsilon, reach=math.ceil(20 / epsilon) if epsilon > 0.5 else 60)
    np.testing.assert_allclose(noise.sum(axis=1), 1, atol=1e-6)
    assert divergence(noise, tables).sum() / best.fun == pytest.approx(ratio, abs=6e-4)
    # No mechanism that keeps the guarantee is better, so neither is the kernel mechanism.
    assert divergence(kernel_columns(tables, epsilon), tables).sum() >= best.fun * (1 - 1e-9)


def test_neither_the_kernel_mechanism_nor_zero_sum_noise_follows_from_the_other():
    """From three cells on there is no universal optimum: both are made of extreme rays, and of different ones."""
    tables, epsilon = tables_of(2, 3), 1.0
    rays = extreme_rays(tables)
    kernel, noise = kernel_columns(tables, epsilon), zero_sum_columns(tables, epsilon)
    assert np.all(kernel > 0)

    def of(columns):
        logs = np.log(columns) / epsilon
        return {tuple(np.rint(f - f.min()).astype(int).tolist()) for f in logs.T}

    assert of(kernel) < of(noise) <= rays
    for first, second in ((kernel, noise), (noise, kernel)):
        # A row of the map for each output of the first, whose rows add up to 1, and which makes the second of it.
        k, m = first.shape[1], second.shape[1]
        makes = np.kron(first, np.eye(m))
        adds = np.kron(np.eye(k), np.ones(m))
        right = np.concatenate([second.ravel(), np.ones(k)])
        found = linprog(np.zeros(k * m), A_eq=np.vstack([makes, adds]), b_eq=right)
        assert found.status == 2
        # Each follows from itself.
        itself = linprog(
            np.zeros(k * k),
            A_eq=np.vstack([np.kron(first, np.eye(k)), np.kron(np.eye(k), np.ones(k))]),
            b_eq=np.concatenate([first.ravel(), np.ones(k)]),
        )
        assert itself.status == 0
