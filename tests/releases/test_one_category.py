"""A table of one category, such as a feature with one label: it is there, and it costs nothing."""

import json

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.privacy.curves import NoLoss

PURE, RENYI = dirdp.PureDP(epsilon=1.0), dirdp.RenyiDP(order=3.0, epsilon=0.3)
N = 120
_RNG = np.random.default_rng(6)
CATEGORIES = {"class": ["cat", "dog", "hen"], "fur": ["yes", "no"], "eyes": ["two"]}
RECORDS = {name: _RNG.choice(labels, N) for name, labels in CATEGORIES.items()}


def naive(labels=("class", "fur", "eyes")):
    columns = {name: RECORDS[name] for name in labels if name != "class"}
    return dirdp.naive_bayes(columns, RECORDS["class"], categories={name: CATEGORIES[name] for name in labels})


@pytest.fixture(scope="module")
def release():
    return dirdp.sample(PURE, naive(), mechanism="geometric")


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (RENYI, {"mechanism": Dirichlet(strategy="temper")}),
        (RENYI, {"mechanism": "dirichlet", "min_count": 2}),
        (PURE, {"mechanism": "geometric", "adjacency": "add-remove", "n_records": N}),
        (PURE, {"mechanism": "auto", "weights": {"p_class": 3.0}}),
    ],
    ids=str,
)
def test_nothing_is_spent_on_it(target, options):
    alone, plan = dirdp.plan(target, naive(["class", "fur"]), **options), dirdp.plan(target, naive(), **options)
    assert [part.table.name for part in plan.parts] == ["p_class", "p_fur", "p_eyes"]
    assert [part.mechanism for part in plan.parts[:2]] == [part.mechanism for part in alone.parts]
    for epsilon in (0.0, 0.3, 2.0):
        assert plan.composition.delta(epsilon) == alone.composition.delta(epsilon)
    assert plan.composition.renyi(4.0) == alone.composition.renyi(4.0)
    assert plan.parts[2].mechanism.pure_epsilon == 0.0


def test_every_neighbour_has_the_same_output():
    """Brute force: whatever the counts are, each sampler returns 1, and the likelihood is the same."""
    mechanism = dirdp.mechanisms.DirichletMechanism([[1.0], [0.5]], 0.3)
    for counts in ([[0], [0]], [[1], [0]], [[0], [10**7]]):
        for sampler in ("exact", "fast"):
            assert np.all(mechanism.sample(counts, released_draws=3, sampler=sampler) == 1.0)
        for row in mechanism.row_likelihoods(np.ones((2, 1))):
            assert np.all(row.cell_loglik(np.array([0.0, 1.0, 7.0]), np.array(0)) == 0.0)
            assert np.all(row.total_loglik(np.array([0.0, 1.0, 7.0])) == 0.0)
    assert (mechanism.epsilon(1e-9), mechanism.renyi(30.0), mechanism.rho(2.0), mechanism.delta(0.0)) == (0, 0, 0, 0)
    assert isinstance(mechanism.curve_key, NoLoss)
    assert dirdp.mechanisms.DirichletMechanism([[1.0, 1.0]], 0.3).pure_epsilon == np.inf
    assert composed({"p": mechanism}, [("p",)], 5).delta(0.0) == 0.0


@pytest.mark.parametrize(
    ("target", "mechanism"),
    [(RENYI, Dirichlet(strategy="temper")), (PURE, "geometric"), (dirdp.ZeroCDP(rho=0.1), "geometric")],
    ids=str,
)
def test_from_the_plan_to_the_prediction(target, mechanism):
    release = dirdp.sample(target, naive(), mechanism=mechanism)
    assert set(release["mechanism/p_eyes"].to_dataset().data_vars) == {"prior", "alpha", "r"}
    assert np.all(release["posterior"]["p_eyes"] == 1)
    assert list(release["posterior"]["eyes"].values) == ["two"]
    assert "the privacy loss is 0" in " ".join(str(dirdp.report(release, full=True)).split())
    assert dirdp.verify(release), str(dirdp.verify(release))
    analysis = dirdp.analyse(release, 100, chains=1, random_seed=1)
    assert np.all(analysis["posterior"]["p_eyes"] == 1)
    counts = analysis["latent_counts"]
    np.testing.assert_array_equal(counts["p_eyes"].sel(eyes="two"), counts["p_class"])
    assert np.all(dirdp.estimate(release).tables["p_eyes"].share_means == 1)
    predicted = dirdp.predict_log_proba(analysis, {"fur": ["yes", "no"], "eyes": ["two", "two"]})
    np.testing.assert_allclose(np.exp(predicted).sum(axis=1), 1)
    with pytest.raises(dirdp.errors.DataError, match="'eyes'"):
        dirdp.predict_log_proba(analysis, {"fur": ["yes"], "eyes": ["three"]})
    whole = {"class": ["cat"], "fur": ["no"], "eyes": ["two"]}
    assert -5 < float(dirdp.log_likelihood(analysis, whole)[0]) < 0
    assert set(dirdp.synthetic(analysis, n_records=50)["eyes"]) == {"two"}


def test_one_class_is_no_class_to_divide_by():
    model = dirdp.naive_bayes({"fur": RECORDS["fur"]}, ["cat"] * N, categories={"class": ["cat"], "fur": ["yes", "no"]})
    release = dirdp.sample(PURE, model, mechanism="geometric", contribution=1)
    assert dirdp.analyse(release, 20, chains=1)["latent_counts"]["p_class"].values.ravel().tolist() == [N] * 20
    np.testing.assert_array_equal(dirdp.predict_log_proba(release, {"fur": ["yes"]}), [[0.0]])
    with pytest.raises(dirdp.errors.UnsupportedModelError, match=r"'p_eyes' has one category only"):
        dirdp.sample(PURE, dirdp.bayesian_network(RECORDS, {"eyes": []}, categories=CATEGORIES))


def test_records_by_person_may_have_as_many_trials_as_it_has_records():
    two = np.full(40, 2)
    with pm.Model(coords={"person": range(40), "eyes": ["two"], "fur": ["yes", "no"]}) as model:
        eyes, fur = pm.Dirichlet("p_eyes", [1.0], dims="eyes"), pm.Dirichlet("p_fur", [1.0, 1.0], dims="fur")
        pm.Multinomial("n_eyes", n=two, p=eyes, observed=two[:, None], dims=("person", "eyes"))
        pm.Multinomial("n_fur", n=two, p=fur, observed=np.full((40, 2), 1), dims=("person", "fur"))
    assert dirdp.verify(dirdp.sample(PURE, model, unit="person", mechanism="geometric"))


def test_shares_that_are_known_do_not_make_the_typical_error_small(release):
    found = dirdp.estimate(release, same_records=False)
    sds = np.concatenate([found.tables[name].share_sds for name in ("p_class", "p_fur")])
    assert f"Typical error: {np.sqrt(np.mean(sds**2)):.2g} of a share" in str(found)


def test_a_file_cannot_add_noise_to_it(release, edited):
    tables = json.loads(release["release"]["text"].item())["plan"]["tables"]
    names = [one["name"] for one in tables]
    alone, noisy = names.index("p_eyes"), tables[names.index("p_fur")]
    edits = [(("plan", "tables", alone, name), noisy[name]) for name in ("mechanism", "parameters")]
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.verify(edited(release, *edits))


def test_a_class_whose_features_have_one_category_is_predicted_as_often_as_it_is_there():
    release = dirdp.sample(RENYI, naive(("class", "eyes")), mechanism="auto", progressbar=False)
    predicted = np.exp(dirdp.predict_log_proba(release, {"eyes": ["two"]}, target="class").values[0])
    np.testing.assert_allclose(predicted, dirdp.fit(release, progressbar=False).posterior["p_class"].values.ravel())
