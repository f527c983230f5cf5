"""Codes of parents, `theta[parents]`, with one parent or several, and what may not be done with them."""

import itertools

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.models.observations import find_observations, read_counts
from tests.planned import planned_sample

from .test_random_models import divergence

RNG = np.random.default_rng(8)
N = 300
A, B = RNG.integers(0, 3, N), RNG.integers(0, 2, N)
C = (A + B + RNG.integers(0, 2, N)) % 4
TARGET = dirdp.RenyiDP(order=4, epsilon=0.5)


def cross(*columns, shape):
    """Second oracle: pandas."""
    frame = pd.DataFrame(dict(enumerate(columns)))
    counts = np.zeros(shape, dtype=int)
    for cell, n in frame.value_counts().items():
        counts[cell] = n
    return counts


def network(a=A, b=B, c=C, *, parents=lambda model, a, b: (a, b)):
    with pm.Model(coords={"A": list("xyz"), "B": ["no", "yes"], "C": list("pqrs")}) as model:
        p_a = pm.Dirichlet("p_a", np.ones(3), dims="A")
        p_b = pm.Beta("p_b", 1, 1, dims="A")
        p_c = pm.Dirichlet("p_c", np.full((3, 2, 4), 0.5), dims=("A", "B", "C"))
        rv_a = pm.Categorical("a", p=p_a, observed=a)
        rv_b = pm.Bernoulli("b", p=p_b[rv_a], observed=b)
        first, second = parents(model, rv_a, rv_b)
        pm.Categorical("c", p=p_c[first, second], observed=c)
    return model


@pytest.mark.parametrize(
    "parents",
    [
        lambda model, a, b: (a, b),
        lambda model, a, b: (A, B),
        lambda model, a, b: (list(A), b),
        lambda model, a, b: (pm.Data("given", A), pm.Data("second", B)),
    ],
    ids=["observed variables", "arrays", "a list", "pm.Data"],
)
def test_parents_decide_the_row(parents):
    model = network(parents=parents)
    p_a, p_b, p_c = dirdp.tables(model)
    np.testing.assert_array_equal(read_counts(find_observations([p_a], model)), np.bincount(A, minlength=3))
    # A Beta's categories are success, then failure.
    np.testing.assert_array_equal(read_counts(find_observations([p_b], model)), cross(A, 1 - B, shape=(3, 2)))
    np.testing.assert_array_equal(read_counts(find_observations([p_c], model)), cross(A, B, C, shape=(3, 2, 4)))
    assert p_b.likelihoods[0].parents == ("a",)


def test_grouped_binomial_and_multinomial():
    group = np.array([0, 2, 2, 1])
    with pm.Model() as model:
        rate = pm.Beta("rate", 1, 1, shape=3)
        p = pm.Dirichlet("p", np.ones((3, 2)))
        pm.Binomial("k", n=[5, 6, 7, 8], p=rate[group], observed=[1, 2, 3, 4])
        pm.Multinomial("m", n=[3, 4, 5, 6], p=p[group], observed=[[1, 2], [3, 1], [5, 0], [0, 6]])
    rate, p = dirdp.tables(model)
    np.testing.assert_array_equal(read_counts(find_observations([rate], model)), [[1, 4], [4, 4], [5, 8]])
    np.testing.assert_array_equal(read_counts(find_observations([p], model)), [[1, 2], [0, 6], [8, 1]])


def test_a_matrix_of_records():
    """Records in two dimensions, each with a parent of its own."""
    parents, values = RNG.integers(0, 3, (4, 5)), RNG.integers(0, 2, (4, 5))
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((3, 2)))
        pm.Categorical("x", p=p[parents], observed=values)
    (table,) = dirdp.tables(model)
    np.testing.assert_array_equal(
        read_counts(find_observations([table], model)), cross(parents.ravel(), values.ravel(), shape=(3, 2))
    )


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda t: t[A, :, B], ["categories from several rows"]),
        (lambda t: t[A, pt.cumsum(B)], ["computed in the model", "a formula"]),
        (lambda t: t[A, pytensor.shared(0, name="base") + B], ["computed in the model"]),
        (lambda t: t[A, pm.Categorical("hidden", p=[0.5, 0.5], shape=N)], ["hidden"]),
        (lambda t: t[A, B] ** 2, ["is a power of shares"]),
        (lambda t: t[A, B][:-1], ["is sliced, reordered or concatenated along an axis whose rows are chosen by codes"]),
        (lambda t: pt.roll(t[A, B], 1, axis=0)[:-1], ["is sliced, reordered or concatenated"]),
        (lambda t: t[A, B][::-1][:-1], ["is sliced, reordered or concatenated"]),
        (lambda t: t[A, B].reshape((N, 4)), ["has a shape that depends on data"]),
    ],
)
def test_other_indexing_is_refused(use, words):
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones((3, 2, 4)))
        p = use(theta)
        pm.Categorical(
            "c", p=p, observed=C[: N - 1] if "cut" in words[0] else C if p.type.ndim == 2 else np.zeros((N, 2), int)
        )
    with pytest.raises(dirdp.errors.UnsupportedModelError) as caught:
        dirdp.tables(model)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (np.where(np.arange(N) == 7, -1, A), "not all >= 0"),
        (np.where(np.arange(N) == 7, 3, A), "codes from 0 to 2"),
        (A[:-1], "one code for each observation"),
        (A[:1], "one code for each observation"),
    ],
)
def test_wrong_parents_are_an_error_without_a_value(column, problem):
    model = network(parents=lambda model, a, b: (pm.Data("given", column), b))
    with pytest.raises(dirdp.errors.DataError, match=problem) as caught:
        dirdp.sample(TARGET, model, contribution=1)
    assert "'c'" in str(caught.value)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("wrong", ["a code for a row of observations", "too few codes"])
def test_shapes_that_do_not_fit_are_found_before_a_ledger_is_charged(wrong, adjacency):
    """Shapes are public, so no budget is lost for them, and no plan is made."""
    words, group = RNG.integers(0, 4, (20, 5)), RNG.integers(0, 3, 20)
    codes = (group[:, None], words[:, :-1]) if wrong.startswith("a code") else (group[:1], words[:, 0])
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((3, 4, 4)))
        pm.Categorical("obs", p=p[codes], observed=words[:, 1:] if wrong.startswith("a code") else words[:, 1])
    ledger = dirdp.Ledger(TARGET)
    options = {"contribution": 4, "adjacency": adjacency, "n_records": 80 if adjacency == "add-remove" else None}
    with pytest.raises(dirdp.errors.DataError, match=r"'obs' do not have one code .* np.repeat"):
        dirdp.plan(TARGET, model, **options)
    with pytest.raises(dirdp.errors.DataError, match="'obs' do not have one code"):
        planned_sample(TARGET, model, ledger=ledger, **options)
    assert not list(ledger.entries())


def test_a_mask_is_no_array_of_codes():
    """Found by hand: a mask as long as the records was counted as codes 0 and 1."""
    with pm.Model() as model:
        theta = pm.Beta("theta", 1, 1, shape=3)
        pm.Bernoulli("k", p=theta[np.array([True, True, True])], observed=[1, 0, 1])
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="chosen by a mask"):
        dirdp.tables(model)


def test_a_release_of_a_network():
    release = dirdp.sample(TARGET, network(), unit=0)
    assert release["posterior"]["p_c"].dims == ("chain", "draw", "A", "B", "C")
    np.testing.assert_allclose(release["posterior"]["p_c"].sum("C"), 1)
    assert set(release["mechanism"].children) == {"p_a", "p_b", "p_c"}
    assert "p_c" in str(dirdp.report(release, full=True))
    synthetic = dirdp.releases.sample_posterior_predictive(release, n_records=10)["posterior_predictive"]
    assert synthetic["c"].dims == ("chain", "draw", "A", "B", "C")


def test_a_deterministic_for_each_record_is_left_out():
    with network() as model:
        pm.Deterministic("of_each", model["p_c"][A, B])
        pm.Deterministic("contrast", model["p_c"][1, 1] - model["p_c"][0, 1])
    release = dirdp.sample(TARGET, model, contribution=1)
    assert "contrast" in release["posterior"]
    assert "of_each" not in release["posterior"]
    assert release["posterior"].attrs["left_out"] == '["of_each"]'


def test_a_record_that_changes_its_rows_never_exceeds_the_curve():
    """All neighbours of all data sets of three records (parent, child): the parent's change moves the child's row."""
    order, r = 3.0, 0.2
    prior_a, prior_c = np.array([0.7, 1.0]), np.array([[0.7, 0.9], [1.2, 0.8]])
    curve = DirichletMechanism(prior_a, r).renyi(order) + DirichletMechanism(prior_c, r).renyi(order)
    worst = 0.0
    records = list(itertools.product(range(2), range(2)))
    for data in itertools.combinations_with_replacement(records, 3):
        for record in records:
            neighbour = (*data[:2], record)
            total = 0.0
            for counts in (
                lambda d: (np.bincount([a for a, _ in d], minlength=2), prior_a),
                lambda d: (cross(*zip(*d, strict=True), shape=(2, 2)), prior_c),
            ):
                x, prior = counts(data)
                y, _ = counts(neighbour)
                total += divergence(r * x + prior, r * y + prior, [order])[0]
            worst = max(worst, total)
    assert 0.5 * curve < worst <= curve * (1 + 1e-12)
