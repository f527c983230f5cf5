"""The likelihood of shares, models to start from, counts behind draws, and what nobody may infer from.

Distributions by brute force are among the tests of the analysis.
"""

import copy
import pickle
from unittest.mock import Mock

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.logprob.utils import ParameterValueError

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, InternalError, ReleaseError
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.likelihood import ReleaseLogp
from tests.planned import one_row, planned_sample
from tests.releases.kinds import departments

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-4)
SHARES = np.array([0.62, 0.3, 0.08])
PRIVATE = {"adjacency": "add-remove", "n_records": 100}


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
    return released(mechanism="dirichlet", min_count=1)


@pytest.fixture(scope="module")
def two_tables():
    return dirdp.sample(APPROX, departments(), contribution=1, mechanism="geometric")


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
    with pytest.raises((NotImplementedError, TypeError), match=r"(?s)input 0 .*second derivative"):
        pytensor.grad(gradient.sum(), p)


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


def draws_of(**shares):
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


def weighed(**options):
    return released((30, 20, 10), [1, 2, 3], **{"mechanism": "dirichlet"} | options)


def rates(**options):
    with pm.Model(coords={"department": list("AB")}) as model:
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
    return planned_sample(APPROX, model, **options)


def counts_of(release, draws=20, **options):
    return dirdp.analyse(release, draws, chains=1, random_seed=1, **options)["latent_counts"]["p"]


def test_noisy_counts_far_outside_give_tables_of_the_public_total(edited):
    for noisy in ([-(10**6), 10**6, 60], [-(10**12), -(10**12), 2 * 10**12 + 60]):
        release = edited(weighed(mechanism="geometric"), (("output", "p", "noisy_counts"), noisy))
        counts = counts_of(release).values
        assert np.all(counts >= 0)
        assert np.all(counts.sum(axis=-1) == 60)


def test_rows_of_noisy_counts_that_no_table_could_give_come_to_an_end(edited):
    """A tilt that was lost to rounding was looked for in small steps, for ever."""
    release = rates(mechanism="geometric")
    values = release["mechanism/rate"]["noisy_counts"].values
    for far in (10**15, -(10**15), 2.0**999):
        values[0], values[1] = far, -far
        values[1, 1] += 70
        numbers = [[int(n) if abs(n) < 2**53 else n for n in row] for row in values.tolist()]
        with pytest.raises(ReleaseError):
            dirdp.analyse(edited(release, (("output", "rate", "noisy_counts"), numbers)), 20)


def test_a_failed_computation_is_our_error_where_the_numbers_are_those_of_a_release(monkeypatch):
    release = rates(mechanism="geometric")
    monkeypatch.setattr("pymc_dirdp.inference.tables.estimate_of_rows", Mock(side_effect=FloatingPointError))
    with pytest.raises(InternalError, match=r"'rate' could not be computed.*report"):
        dirdp.estimate(release)


def test_a_private_number_of_records_needs_a_prior_that_reaches_far_enough():
    release = weighed(**PRIVATE)
    with pytest.raises(ArgumentError, match=r"number of records of 'p' is private.*n_prior"):
        dirdp.analyse(release)
    analysis = dirdp.analyse(release, 100, chains=1, n_prior=200)
    assert "0 to 200 records" in analysis.attrs["conditional_on"]
    totals = analysis["latent_counts"]["p"].sum("hair")
    assert totals.max() <= 200
    assert len(np.unique(totals)) > 10
    known = dirdp.analyse(release, 20, chains=1, n_prior=np.arange(61) == 60.0)
    assert set(np.unique(known["latent_counts"]["p"].sum("hair"))) == {60}
    assert "your prior of the number" in known.attrs["conditional_on"]
    for wrong in (0, -3, 2.5, [1.0], [0.0, 0.0], [1.0, -1.0], [[1.0, 2.0]], [1.0, np.nan]):
        with pytest.raises(ArgumentError, match="n_prior"):
            dirdp.analyse(release, n_prior=wrong)
    least = weighed(min_count=5, **PRIVATE)
    with pytest.raises(ArgumentError, match="reaches further"):
        dirdp.analyse(least, n_prior=14)
    assert counts_of(least, n_prior=30).min() >= 5
    noisy = released((9000, 20, 10), [1, 2, 3], adjacency="add-remove")
    for n_prior in (10, range(10), np.ones(11)):
        for verb in (dirdp.estimate, dirdp.analyse):
            with pytest.raises(ArgumentError, match="with larger numbers"):
                verb(noisy, n_prior=n_prior)
    assert dirdp.estimate(noisy, n_prior=20_000)


def test_a_prior_of_ones_own_changes_the_answer_and_has_to_fit():
    release = weighed(mechanism="geometric")
    narrow = dirdp.estimate(release, prior=[1e4, 1e4, 1e4])
    np.testing.assert_allclose(narrow.tables["p"].share_means, 1 / 3, rtol=1e-2)
    assert "a prior of your own" in narrow.conditions[0]
    assert dirdp.analyse(release, 5, chains=1, prior={"p": [1, 1, 1]})["posterior"]["p"].shape == (1, 5, 3)
    for wrong in ([1, 1], [1, 1, 0], [[1, 1, 1]], "a"):
        with pytest.raises(ArgumentError, match="prior"):
            dirdp.analyse(release, prior=wrong)
    with pytest.raises(ArgumentError, match="prior names 'q', and the release has the tables p"):
        dirdp.analyse(release, prior={"q": [1, 1, 1]})


def test_a_prior_of_rows_is_for_several_rows():
    release = rates()
    strong = dirdp.analyse(release, 200, chains=1, row_prior=[1e6, 1e6], random_seed=1)
    totals = strong["latent_counts"]["rate"].sum("rate_outcome")
    assert abs(float(totals.mean(("chain", "draw"))[0]) - 35) < 3
    assert float(totals.std(("chain", "draw"))[0]) < 6
    assert "your prior of the division" in strong.attrs["conditional_on"]
    for given, row_prior, words in ((release, [1, 1, 1], "row_prior"), (weighed(), [1.0], "'p' has one")):
        with pytest.raises(ArgumentError, match=words):
            dirdp.analyse(given, row_prior=row_prior)
