"""A table of one category, such as a feature with one label: it is kept, and it costs nothing."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.privacy.curves import NoLoss
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
RNG = np.random.default_rng(6)
N = 120
CLASS, FUR = RNG.choice(["cat", "dog", "hen"], N), RNG.choice(["yes", "no"], N)
CATEGORIES = {"class": ["cat", "dog", "hen"], "fur": ["yes", "no"], "eyes": ["two"]}
RECORDS = {"class": CLASS, "fur": FUR, "eyes": ["two"] * N}
PRIVATE = {"adjacency": "add-remove", "n_records": N}


def naive(labels=("class", "fur", "eyes")):
    return dirdp.naive_bayes(
        {"fur": FUR, "eyes": RECORDS["eyes"]}, CLASS, categories={name: CATEGORIES[name] for name in labels}
    )


LONG = [{"min_count": 2}, {"weights": {"p_class": 3.0}}, {**PRIVATE, "mechanism": "geometric"}]


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": Dirichlet(strategy="temper")},
        {"mechanism": "geometric"},
        {"mechanism": "auto"},
        *(pytest.param(options, marks=pytest.mark.thorough) for options in LONG),
    ],
    ids=str,
)
def test_nothing_is_spent_on_it(options):
    """The other tables have the mechanisms, and the release the loss, that they have without it: bit by bit."""
    alone, plan = dirdp.plan(TARGET, naive(["class", "fur"]), **options), dirdp.plan(TARGET, naive(), **options)
    assert [part.table.name for part in plan.parts] == ["p_class", "p_fur", "p_eyes"]
    assert [part.mechanism for part in plan.parts[:2]] == [part.mechanism for part in alone.parts]
    for epsilon in (0.0, 0.3, 2.0):
        assert plan.composition.delta(epsilon) == alone.composition.delta(epsilon)
    assert plan.composition.renyi(4.0) == alone.composition.renyi(4.0)
    assert plan.parts[2].mechanism.pure_epsilon == 0.0


@pytest.mark.parametrize("kind", [dirdp.PureDP(epsilon=1.0), dirdp.ZeroCDP(rho=0.1)])
def test_guarantees_that_no_dirichlet_draw_keeps_hold_beside_it(kind):
    release = dirdp.sample(kind, naive(), mechanism="geometric")
    assert dirdp.verify(release)
    assert set(release["mechanism/p_eyes"].to_dataset().data_vars) == {"prior", "alpha", "r"}


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
    # A second category makes it lose.
    assert dirdp.mechanisms.DirichletMechanism([[1.0, 1.0]], 0.3).pure_epsilon == np.inf
    assert composed({"p": mechanism}, [("p",)], 5).delta(0.0) == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": Dirichlet(strategy="temper")},
        {"mechanism": "geometric"},
    ],
    ids=str,
)
def test_from_the_plan_to_the_prediction(options, tmp_path):
    release = planned_sample(TARGET, naive(), **options)
    assert np.all(release["posterior"]["p_eyes"] == 1)
    assert list(release["posterior"]["eyes"].values) == ["two"]
    assert "the privacy loss is 0" in " ".join(str(dirdp.report(release, full=True)).split())
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        assert dirdp.verify(back), str(dirdp.verify(back))
        analysis = dirdp.analyse(back, 200, chains=1, random_seed=1)
        estimates = dirdp.estimate(back)
    # Each class has as many eyes of the one kind as it has records.
    assert np.all(analysis["posterior"]["p_eyes"] == 1)
    np.testing.assert_array_equal(
        analysis["latent_counts"]["p_eyes"].sel(eyes="two"), analysis["latent_counts"]["p_class"]
    )
    assert np.all(estimates.tables["p_eyes"].share_means == 1)
    X = {"fur": ["yes", "no"], "eyes": ["two", "two"]}
    with_it = dirdp.predict_log_proba(analysis, X)
    np.testing.assert_allclose(np.exp(with_it).sum(axis=1), 1)
    with pytest.raises(dirdp.errors.DataError, match="'eyes'"):
        dirdp.predict_log_proba(analysis, {"fur": ["yes"], "eyes": ["three"]})
    whole = {"class": ["cat"], "fur": ["no"]}
    own = dirdp.log_likelihood(analysis, whole | {"eyes": ["two"]})
    assert -5 < float(own[0]) < 0
    assert set(dirdp.synthetic(analysis, n_records=50)["eyes"]) == {"two"}


def test_one_class_is_no_class_to_divide_by():
    """Found by attack: features of a single class were read jointly with it, which has no rows to divide."""
    one = {"class": ["cat"], "fur": ["yes", "no"]}
    model = dirdp.naive_bayes({"fur": FUR}, ["cat"] * N, categories=one)
    release = dirdp.sample(TARGET, model, mechanism="geometric", contribution=1)
    assert dirdp.analyse(release, 20, chains=1)["latent_counts"]["p_class"].values.ravel().tolist() == [N] * 20
    np.testing.assert_array_equal(dirdp.predict_log_proba(release, {"fur": ["yes"]}), [[0.0]])


def test_a_model_of_it_alone_has_nothing_to_estimate():
    with pytest.raises(dirdp.errors.UnsupportedModelError, match=r"'p_eyes' has one category only"):
        dirdp.sample(TARGET, dirdp.bayesian_network(RECORDS, {"eyes": []}, categories=CATEGORIES))


def test_records_by_person_may_have_as_many_trials_as_it_has_records():
    """Found by attack: two records of each person were taken for a number of trials that is data."""
    coords = {"person": range(40), "eyes": ["two"], "fur": ["yes", "no"]}
    two = np.full(40, 2)
    with pm.Model(coords=coords) as model:
        eyes, fur = pm.Dirichlet("p_eyes", [1.0], dims="eyes"), pm.Dirichlet("p_fur", [1.0, 1.0], dims="fur")
        pm.Multinomial("n_eyes", n=two, p=eyes, observed=two[:, None], dims=("person", "eyes"))
        pm.Multinomial("n_fur", n=two, p=fur, observed=np.full((40, 2), 1), dims=("person", "fur"))
    release = dirdp.sample(TARGET, model, unit="person")
    assert dirdp.verify(release)


def test_shares_that_are_known_do_not_make_the_typical_error_small():
    found = dirdp.estimate(dirdp.sample(TARGET, naive(), mechanism="geometric"), same_records=False)
    sds = np.concatenate([found.tables[name].share_sds for name in ("p_class", "p_fur")])
    assert f"Typical error: {np.sqrt(np.mean(sds**2)):.2g} of a share" in str(found)


def test_a_file_cannot_add_noise_to_it(edited):
    """Noise on a table of one category would tell the sizes of its rows; no plan has that, and no file may."""
    release = dirdp.sample(TARGET, naive(), mechanism="geometric")
    names = [one["name"] for one in json.loads(release["release"]["text"].item())["plan"]["tables"]]
    noisy, alone = names.index("p_fur"), names.index("p_eyes")
    facts = json.loads(release["release"]["text"].item())["plan"]["tables"][noisy]
    edits = [(("plan", "tables", alone, name), facts[name]) for name in ("mechanism", "parameters")]
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.verify(edited(release, *edits))


def test_a_class_whose_features_have_one_category_is_predicted_as_often_as_it_is_there():
    """Found by attack: the simulation that chooses a mechanism found no records, and the plan failed."""
    release = dirdp.sample(TARGET, naive(("class", "eyes")), mechanism="auto", progressbar=False)
    predicted = np.exp(dirdp.predict_log_proba(release, {"eyes": ["two"]}, target="class").values[0])
    np.testing.assert_allclose(predicted, dirdp.fit(release, progressbar=False).posterior["p_class"].values.ravel())
