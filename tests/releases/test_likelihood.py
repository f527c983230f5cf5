"""The likelihood of shares: against all tables there are, by finite differences, in PyTensor graphs, and misused."""

import copy
import itertools
import pickle
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.graph import PLAIN
from pymc_dirdp.releases.inference_setup import inferences
from pymc_dirdp.releases.likelihood import ReleaseLogp
from pymc_dirdp.releases.opened import open_release
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-4)
KINDS = {
    "dirichlet": {},
    "draws": {"released_draws": 3},
    "min_count": {"min_count": 1, "released_draws": 2},
    "geometric": {"mechanism": "geometric"},
}
SHARES = np.array([0.62, 0.3, 0.08])


def only(release, prior, n_prior, row_prior):
    """The output of the only table, and the beliefs about it."""
    found = inferences(release, prior, n_prior, row_prior, same_records=False)
    ((name, seen),) = found.tables.items()
    return SimpleNamespace(seen=seen, drawn=open_release(release).tables[name], beliefs=found.beliefs[name])


def released(counts=(7, 4, 1), guarantee=APPROX, **options):
    with pm.Model(coords={"hair": [f"h{i}" for i in range(len(counts))]}):
        p = pm.Dirichlet("p", a=np.ones(len(counts)), dims="hair")
        pm.Multinomial("students", n=int(np.sum(counts)), p=p, observed=counts)
        return planned_sample(guarantee, **options)


def operation(release, n_prior=None, row_prior=None):
    one = only(release, None, n_prior, row_prior)
    return ReleaseLogp(one.seen, one.beliefs)


def tables(output, cells, most):
    """All tables of the public total, or of all totals up to one, and the logarithm of the likelihood of each."""
    least = output.observed_table.least
    x = np.array([x for x in itertools.product(range(least, most + 1), repeat=cells) if sum(x) <= most])
    x = x.astype(float) if output.n_records is None else x[x.sum(axis=1) == most].astype(float)
    x = x.reshape(-1, *output.prior.shape)
    logs = sum(output.mechanism.log_likelihood(y, x, steps=output.steps) for y in output.published)
    return x, logs - (np.log(most + 1) if output.n_records is None else 0)


@pytest.mark.thorough
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_are_those_of_all_tables(kind, adjacency):
    private = adjacency == "add-remove"
    release = released(**KINDS[kind], adjacency=adjacency, **({"n_records": 12} if private else {}))
    n_prior = 14 if private else None
    one = only(release, None, n_prior, None)
    x, logs = tables(one.drawn, 3, 14 if private else 12)
    logs = logs + gammaln(x.sum(axis=1) + 1) + np.sum(x * np.log(SHARES) - gammaln(x + 1), axis=1)
    p = pt.dvector("p")
    logp = dirdp.release_logp(release, p, n_prior=n_prior)
    value, gradient = pytensor.function([p], [logp, pytensor.grad(logp, p)], mode=PLAIN)(SHARES)
    # Rounding shows where the logarithms of the urn's factors are large.
    assert value == pytest.approx(logsumexp(logs), abs=1e-7 if one.drawn.steps else 1e-11)
    np.testing.assert_allclose(gradient * SHARES, np.exp(logs - logsumexp(logs)) @ x, rtol=1e-9)


def test_a_share_of_zero_is_an_empty_cell():
    op = operation(released(mechanism="geometric"))
    with np.errstate(divide="ignore"):
        value, counts = op.evaluate(np.log([0.6, 0.4, 0.0]))
    near, _ = op.evaluate(np.log([0.6, 0.4, 1e-14]))
    assert value == pytest.approx(near, abs=1e-10)
    assert counts[2] == 0
    # Every cell was guaranteed to hold one record, so it is impossible.
    with np.errstate(divide="ignore"):
        value, counts = operation(released(min_count=1)).evaluate(np.log([0.6, 0.4, 0.0]))
    assert value == -np.inf
    assert not counts.any()


def test_what_is_no_share_is_an_error_outside_a_model_and_impossible_inside():
    release, p = released(), pt.dvector("p")
    logp = pytensor.function([p], dirdp.release_logp(release, p))
    assert np.isfinite(logp([0.5, 0.3, 0.2 + 1e-8]))
    for wrong in ([0.5, 0.3, 0.2001], [0.5, 0.7, -0.2], [np.nan, 0.5, 0.5], [np.inf, 0.0, 0.0]):
        with pytest.raises(ParameterValueError, match="sum"), np.errstate(invalid="ignore"):
            logp(wrong)
    with pm.Model():
        pm.Binomial("x", n=9, p=pm.Beta("p", 1, 1), observed=4)
        beta = dirdp.sample(APPROX)
    q = pt.dscalar("q")
    logp_of_one = pytensor.function([q], dirdp.release_logp(beta, q))
    assert np.isfinite(logp_of_one(0.3))
    for outside in (-0.5, 1.5):
        with pytest.raises(ParameterValueError, match="0 <= p <= 1"), np.errstate(invalid="ignore"):
            logp_of_one(outside)
    with pm.Model() as model:
        shares = pm.Flat("shares", shape=3)
        pm.Potential("release", dirdp.release_logp(release, shares))
    assert model.compile_logp()({"shares": [0.5, 0.3, 0.3]}) == -np.inf
    with pytest.raises((AssertionError, ValueError), match=r"expected 3|Expected as many"):
        logp([0.5, 0.5])


@pytest.mark.parametrize("p", [pt.dscalar(), pt.dmatrix(), np.ones(4) / 4, [0.5, 0.5]])
def test_a_shape_that_does_not_fit_is_refused_at_once(p):
    with pytest.raises(ArgumentError, match=r"p in the shape of 'p', \(3,\), got"):
        dirdp.release_logp(released(), p)


def test_which_table():
    with pm.Model():
        p, q = pm.Beta("p", 1, 1), pm.Beta("q", 1, 1)
        pm.Binomial("x", n=10, p=p, observed=3)
        pm.Binomial("y", n=10, p=q, observed=9)
        release = dirdp.sample(dirdp.PureDP(epsilon=5.0), mechanism="geometric")
    low, high = (dirdp.release_logp(release, pt.constant(0.3), table).eval() for table in "pq")
    assert low > high
    with pytest.raises(ArgumentError, match="tables p, q"):
        dirdp.release_logp(release, 0.3)
    with pytest.raises(ArgumentError, match="no table 'r', but p, q"):
        dirdp.release_logp(release, 0.3, "r")
    with pytest.raises(ArgumentError, match="n_prior"):
        dirdp.release_logp(released(adjacency="add-remove", n_records=12), SHARES)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op))])
def test_a_copy_says_the_same(copied):
    for release in (released(), released(mechanism="geometric")):
        op = operation(release)
        value, counts = copied(op).evaluate(np.log(SHARES))
        assert value == op.evaluate(np.log(SHARES))[0]
        assert np.array_equal(counts, op.evaluate(np.log(SHARES))[1])
        assert str(op) == "ReleaseLogp(p)"


def test_there_is_no_second_derivative():
    p = pt.dvector("p")
    gradient = pytensor.grad(dirdp.release_logp(released(), p), p)
    with pytest.raises((NotImplementedError, TypeError), match="second derivative"):
        pytensor.grad(gradient.sum(), p)


def test_shares_in_single_precision():
    p = pt.fvector("p")
    logp = dirdp.release_logp(released(), p)
    gradient = pytensor.grad(logp, p)
    assert gradient.dtype == "float32"
    assert np.all(np.isfinite(pytensor.function([p], gradient)(SHARES.astype("float32"))))
