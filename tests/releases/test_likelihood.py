"""The likelihood of shares in models of one's own, models to start from, and counts behind their draws.

Their distributions by brute force are among the tests of the analysis.
"""

import copy
import pickle

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.logprob.utils import ParameterValueError

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.likelihood import ReleaseLogp
from tests.planned import one_row, planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-4)
SHARES = np.array([0.62, 0.3, 0.08])


def released(counts=(7, 4, 1), prior=1.0, **options):
    return planned_sample(APPROX, one_row(counts, prior), **{"mechanism": "geometric"} | options)


def operation(release):
    found = inferences(release, None, None, None, same_records=False)
    return ReleaseLogp(found.tables["p"], found.beliefs["p"])


@pytest.fixture(scope="module")
def release():
    return released()


@pytest.fixture(scope="module")
def least():
    """Every cell is guaranteed to hold a record."""
    return released(mechanism="dirichlet", min_count=1)


@pytest.fixture(scope="module")
def two_tables():
    with pm.Model(coords={"department": list("AB"), "hair": ["black", "brown", "red"]}) as model:
        rate = pm.Beta("rate", [1, 2], 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("students", n=70, p=p, observed=[30, 30, 10])
    return dirdp.sample(APPROX, model, contribution=1, mechanism="geometric")


def test_a_share_of_zero_is_an_empty_cell(release, least):
    with np.errstate(divide="ignore"):
        edge = np.log([0.6, 0.4, 0.0])
    value, counts = operation(release).evaluate(edge)
    assert value == pytest.approx(operation(release).evaluate(np.log([0.6, 0.4, 1e-14]))[0], abs=1e-10)
    assert counts[2] == 0
    value, counts = operation(least).evaluate(edge)
    assert value == -np.inf
    assert not counts.any()


def test_what_is_no_share_is_an_error_outside_a_model_and_impossible_inside(release):
    p, q = pt.dvector("p"), pt.dscalar("q")
    logp = pytensor.function([p], dirdp.release_logp(release, p), mode=PLAIN)
    assert np.isfinite(logp([0.5, 0.3, 0.2 + 1e-8]))
    for wrong in ([0.5, 0.3, 0.2001], [0.5, 0.7, -0.2], [np.nan, 0.5, 0.5], [np.inf, 0.0, 0.0]):
        with pytest.raises(ParameterValueError, match="sum"), np.errstate(invalid="ignore"):
            logp(wrong)
    with pytest.raises((AssertionError, ValueError), match=r"expected 3|Expected as many|cannot reshape"):
        logp([0.5, 0.5])
    with pm.Model() as model:
        pm.Binomial("x", n=9, p=pm.Beta("p", 1, 1), observed=4)
    beta = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    logp_of_one = pytensor.function([q], dirdp.release_logp(beta, q), mode=PLAIN)
    assert np.isfinite(logp_of_one(0.3))
    for outside in (-0.5, 1.5):
        with pytest.raises(ParameterValueError, match="0 <= p <= 1"), np.errstate(invalid="ignore"):
            logp_of_one(outside)
    with pm.Model() as model:
        shares = pm.Flat("shares", shape=3)
        pm.Potential("release", dirdp.release_logp(release, shares))
    assert model.compile_logp(mode=pytensor.Mode("py", "fast_run"))({"shares": [0.5, 0.3, 0.3]}) == -np.inf


def test_which_table_and_shape(release, two_tables):
    for p in (pt.dscalar(), pt.dmatrix(), np.ones(4) / 4):
        with pytest.raises(ArgumentError, match=r"p in the shape of 'p', \(3,\), got"):
            dirdp.release_logp(release, p)
    rates = [dirdp.release_logp(two_tables, np.array([x, x]), "rate").eval(mode=PLAIN) for x in (0.4, 0.9)]
    assert rates[0] > rates[1]
    for table, words in ((None, "tables rate, p"), ("r", "no table 'r', but rate, p")):
        with pytest.raises(ArgumentError, match=words):
            dirdp.release_logp(two_tables, SHARES, table)
    with pytest.raises(ArgumentError, match="n_prior"):
        dirdp.release_logp(released(mechanism="dirichlet", adjacency="add-remove", n_records=12), SHARES)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_a_copy_says_the_same(copied, release, least):
    for op in (operation(release), operation(least)):
        value, counts = copied(op).evaluate(np.log(SHARES))
        assert value == op.evaluate(np.log(SHARES))[0]
        assert np.array_equal(counts, op.evaluate(np.log(SHARES))[1])
        assert str(op) == "ReleaseLogp(p)"


def test_single_precision_and_no_second_derivative(release):
    p = pt.fvector("p")
    gradient = pytensor.grad(dirdp.release_logp(release, p), p)
    assert gradient.dtype == "float32"
    assert np.all(np.isfinite(pytensor.function([p], gradient, mode=PLAIN)(SHARES.astype("float32"))))
    with pytest.raises((NotImplementedError, TypeError), match="second derivative"):
        pytensor.grad(gradient.sum(), p)


# Models to start from.


def test_the_model_has_the_names_dims_and_labels_of_the_release(two_tables):
    model = dirdp.releases.analyst_model(two_tables)
    assert sorted(variable.name for variable in model.free_RVs) == ["p", "rate"]
    assert [potential.name for potential in model.potentials] == ["rate_release", "p_release"]
    assert model.named_vars_to_dims == {"rate": ("department",), "p": ("hair",)}
    assert model.coords == {"department": ("A", "B"), "hair": ("black", "brown", "red")}
    assert np.isfinite(model.compile_logp(mode=PLAIN)(model.initial_point()))
    some = dirdp.releases.analyst_model(two_tables, ["p"], prior={"p": [5.0, 6.0, 7.0]})
    assert [variable.name for variable in some.free_RVs] == ["p"]
    for rv, expected in ((model["rate"], [[1, 2], [1, 1]]), (model["p"], [[1] * 3]), (some["p"], [[5, 6, 7]])):
        parameters = rv.owner.op.dist_params(rv.owner)
        assert [one.eval().tolist() for one in parameters] == expected
    assert [variable.name for variable in dirdp.releases.analyst_model(two_tables, "rate").free_RVs] == ["rate"]
    for wrong, problem in ((["q"], "no table 'q'"), ([], "at least one table")):
        with pytest.raises(ArgumentError, match=problem):
            dirdp.releases.analyst_model(two_tables, wrong)


# Counts behind draws.


def draws_of(**shares):
    """What `pm.sample` returns, with shares that are given: one draw, or several chains and draws of them."""
    arrays = {name: np.asarray(values, dtype=float)[None, None] for name, values in shares.items()}
    dims = {name: ("chain", "draw", "hair")[: array.ndim] for name, array in arrays.items()}
    return xr.DataTree.from_dict({"/posterior": xr.Dataset({name: (dims[name], arrays[name]) for name in arrays})})


def test_counts_of_rows_of_private_numbers_and_of_empty_cells(two_tables, release, least):
    both = dirdp.releases.latent_counts(dirdp.analyse(two_tables, 5, chains=1), two_tables, random_seed=1)
    assert both["rate"].dims == ("chain", "draw", "department", "rate_outcome")
    assert np.all(both["rate"].sum(("department", "rate_outcome")) == 70)
    few, many = (dirdp.releases.latent_counts(draws_of(rate=[x, x]), two_tables)["rate"] for x in (0.05, 0.95))
    assert few.sel(rate_outcome="success").sum() < many.sel(rate_outcome="success").sum()
    private = released((30, 20, 10), mechanism="dirichlet", adjacency="add-remove", n_records=100)
    analysis = dirdp.analyse(private, 40, chains=1, n_prior=200)
    totals = dirdp.releases.latent_counts(analysis, private, n_prior=200)["p"].sum("hair")
    assert totals.max() <= 200
    assert len(np.unique(totals)) > 5
    edge = draws_of(p=[0.5, 0.5, 0.0])
    assert dirdp.releases.latent_counts(edge, release)["p"].values[0, 0, 2] == 0
    with pytest.raises(ArgumentError, match="Did your model use this release"):
        dirdp.releases.latent_counts(edge, least)


def test_draws_that_do_not_fit_are_refused(release):
    cases = [
        (None, None, "group posterior"),
        (draws_of()["posterior"], None, "group posterior"),
        (draws_of(q=0.5), None, "at least one table"),
        (draws_of(q=0.5), "p", "draws of 'p', with the dims"),
        (draws_of(p=[0.5, 0.5]), None, r"shape \(3,\), got \(2,\)"),
        *((draws_of(p=wrong), None, "no probab") for wrong in ([0.5, 0.3, 0.3], [0.5, 0.7, -0.2], [np.nan, 0.5, 0.5])),
    ]
    for idata, tables, words in cases:
        with pytest.raises(ArgumentError, match=words):
            dirdp.releases.latent_counts(idata, release, tables)
    with pytest.raises(ReleaseError, match="Expected a release"):
        dirdp.releases.latent_counts(draws_of(p=SHARES), 3)
