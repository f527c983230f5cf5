"""Releases of a whole posterior: truncated geometric noise, and the Hellinger mechanisms, as plans name them."""

import dataclasses
import itertools
import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import chisquare, dirichlet_multinomial, kstest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, ReleaseError, UnattainableError
from pymc_dirdp.planning.estimate_error import estimate_error

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.RepeatedReleaseWarning")
ONE = dirdp.PureDP(epsilon=1.0)
TRUNCATED, HELLINGER = "truncated-geometric", "hellinger"
KINDS = (TRUNCATED, HELLINGER)
# What is planned: the kind and the counts.
CASES = {
    "truncated, two": (TRUNCATED, [3, 5]),
    "truncated, three": (TRUNCATED, [2, 0, 4]),
    "truncated, five": (TRUNCATED, [1, 0, 2, 0, 1]),
    "Hellinger, two": (HELLINGER, [3, 5]),
    "Hellinger, three": (HELLINGER, [2, 0, 4]),
}
# Those from which anybody infers.
PRODUCTS = [name for name in CASES if name != "Hellinger, three"]


def model(counts, prior=1.0):
    with pm.Model() as built:
        p = pm.Dirichlet("p", a=np.full(len(counts), prior))
        pm.Multinomial("x", n=int(np.sum(counts)), p=p, observed=counts)
    return built


def coin(heads, flips):
    with pm.Model() as built:
        p = pm.Beta("p", 2.0, 1.0)
        pm.Binomial("heads", n=flips, p=p, observed=heads)
    return built


def rows():
    with pm.Model(coords={"ward": range(4), "answer": range(3)}) as built:
        p = pm.Dirichlet("p", a=np.ones((4, 3)), dims=("ward", "answer"))
        pm.Multinomial("x", n=[10] * 4, p=p, observed=[[5, 5, 0]] * 4, dims=("ward", "answer"))
    return built


def people(trials=1):
    with pm.Model(coords={"person": range(6)}) as built:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("y", n=trials, p=p, observed=[0, 1, 1, 0, 1, 1], dims="person")
    return built


def released(kind, counts, guarantee=ONE, **options):
    return dirdp.sample(guarantee, model(counts), mechanism=kind, **options)


def mechanism_of(kind, counts, guarantee=ONE, **options):
    return dirdp.plan(guarantee, model(counts), mechanism=kind, **options).parts[0].mechanism


def published(release):
    group = release["mechanism/p"]
    return group["noisy_counts" if "noisy_counts" in group else "released_counts"].values


def every_table(n, d):
    return np.array([x for x in itertools.product(range(n + 1), repeat=d) if sum(x) == n])


@pytest.mark.parametrize("name", CASES)
def test_what_is_published_is_one_release_and_verifies(name, tmp_path):
    kind, counts = CASES[name]
    release = released(kind, counts, draws=7)
    z = published(release)
    assert z.sum() == sum(counts)
    assert np.all((z >= 0) & (z == np.floor(z)))
    assert release["posterior"]["p"].shape == (1, 7, len(counts))
    np.testing.assert_allclose(release["posterior"]["p"].sum("p_dim_0"), 1)
    verification = dirdp.verify(release)
    assert verification
    assert verification.recomputed.epsilon == pytest.approx(1, rel=1e-3)
    text = " ".join(str(dirdp.report(release, full=True)).split())
    assert "posterior given the" in text
    assert ("of dirdp.estimate" in text) == (name in PRODUCTS)
    assert ("for the data, so their intervals" in text) == (name not in PRODUCTS)
    assert str(dirdp.statement(release))
    release.to_netcdf(tmp_path / "release.nc")
    assert dirdp.verify(xr.open_datatree(tmp_path / "release.nc"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_the_release_has_the_distribution_that_the_curves_are_about(name):
    """By enumeration: no pair of neighbours is further apart.

    And what the exact sampler draws has that distribution.
    """
    kind, counts = CASES[name]
    mechanism, x = mechanism_of(kind, counts), np.array(counts)
    outcomes = every_table(sum(counts), len(counts))

    def distribution(data):
        return np.exp(mechanism.log_likelihood(outcomes, data))

    own = distribution(x)
    assert own.sum() == pytest.approx(1, abs=1e-12)
    for a, b in itertools.permutations(range(len(x)), 2):
        if x[a]:
            near = distribution(x - np.eye(len(x), dtype=int)[a] + np.eye(len(x), dtype=int)[b])
            assert np.max(np.log(own / near)) <= 1 + 1e-9
    rng = np.random.default_rng(8)
    drawn = [mechanism.draw(x, 1, sampler="exact", random_seed=rng).published for _ in range(2000)]
    places = {tuple(outcome): place for place, outcome in enumerate(outcomes.tolist())}
    seen = np.bincount([places[tuple(int(v) for v in z)] for (z,) in map(dict.values, drawn)], minlength=len(outcomes))

    def agrees(expected):
        # Outcomes that are seen less than five times are taken together.
        rare = expected * 2000 < 5
        both = [np.append(values[~rare], values[rare].sum()) for values in (seen, 2000 * expected)]
        likely = both[1] > 0
        return chisquare(both[0][likely], both[1][likely] * both[0].sum() / both[1][likely].sum()).pvalue

    assert agrees(own) > 1e-6
    assert agrees(distribution(np.roll(x, 1))) < 1e-6


@pytest.mark.parametrize("name", PRODUCTS)
def test_inferences_are_those_of_all_tables_weighed(name):
    kind, counts = CASES[name]
    release = released(kind, counts)
    mechanism, z, prior = mechanism_of(kind, counts), published(release), np.full(len(counts), 1.0)
    n, tables = sum(counts), every_table(sum(counts), len(counts))
    logs = [dirichlet_multinomial.logpmf(x, prior, n) + float(mechanism.log_likelihood(z, x)) for x in tables]
    weights = np.exp(logs - logsumexp(logs))
    found = dirdp.estimate(release)
    count_means = weights @ tables
    share_means = (prior + count_means) / (prior.sum() + n)
    np.testing.assert_allclose(found.tables["p"].count_means, count_means, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.tables["p"].share_means, share_means, rtol=0, atol=1e-10)
    assert found.tables["p"].log_evidence == pytest.approx(logsumexp(logs), abs=1e-10)
    drawn = dirdp.analyse(release, 6000, chains=1, random_seed=1)["latent_counts"]["p"].values.reshape(-1, len(counts))
    first = np.bincount(drawn[:, 0], minlength=n + 1)
    expected = np.bincount(tables[:, 0], weights=weights, minlength=n + 1)
    likely = expected > 1e-9
    assert first[~likely].sum() == 0
    assert chisquare(first[likely], 6000 * expected[likely] / expected[likely].sum()).pvalue > 1e-6


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_draws_are_from_the_exact_posterior(name):
    kind, counts = CASES[name]
    release = released(kind, counts, draws=4000)
    given = dirdp.analyse(release, 4000, chains=1, random_seed=2)["posterior"]["p"].values[0]
    drawn = release["posterior"]["p"].values[0]
    assert kstest(drawn[:, 0], given[:, 0]).pvalue > 1e-6
    # A reader of counts as data would be surer, and wrong.
    z = published(release)
    naive = np.random.default_rng(3).dirichlet(z + 1.0, 4000)
    assert naive[:, 0].std() < drawn[:, 0].std()


def test_three_categories_of_hellinger_publish_what_the_paper_does():
    release = released(HELLINGER, [5, 0, 4], draws=4000)
    z = published(release) + 1.0
    drawn = release["posterior"]["p"].values[0]
    assert kstest(drawn[:, 0], "beta", args=(z[0], z[1:].sum())).pvalue > 1e-6
    for infer in (dirdp.analyse, dirdp.estimate, dirdp.releases.analyst_model):
        with pytest.raises(ArgumentError, match="no product over cells") as error:
            infer(release)
        assert not isinstance(error.value, ReleaseError)
    assert "no posterior given them" in " ".join(str(dirdp.report(release, full=True)).split())
    assert "dirdp.analyse" not in str(dirdp.statement(release))
    # No estimate follows from it, so the error that is stated is not that of one.
    for said in (str(dirdp.report(release, full=True)), str(dirdp.statement(release))):
        assert "of the mean" in said
        assert "of dirdp.estimate" not in said
    assert 0 < release["utility"]["share_error"].item() < 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_beta_and_one_record(kind):
    for heads, flips in ((0, 1), (1, 1), (0, 40), (40, 40)):
        release = dirdp.sample(ONE, coin(heads, flips), mechanism=kind)
        assert dirdp.verify(release)
        assert 0 < float(release["posterior"]["p"].squeeze()) < 1
        assert dirdp.estimate(release).tables["p"].count_means.sum() == pytest.approx(flips)


@pytest.mark.parametrize(
    "guarantee",
    [
        dirdp.ApproxDP(epsilon=0.5, delta=1e-5),
        dirdp.RenyiDP(order=3, epsilon=0.1),
        dirdp.ZeroCDP(rho=0.05),
        dirdp.TruncatedCDP(rho=0.05, omega=4),
        dirdp.PureDP(epsilon=0.01),
        dirdp.PureDP(epsilon=8.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["truncated, three", "Hellinger, two"])
def test_every_guarantee_holds_and_used(name, guarantee):
    kind, counts = CASES[name]
    release = released(kind, counts, guarantee)
    assert dirdp.verify(release)
    loss, allowed = mechanism_of(kind, counts, guarantee).loss(guarantee)
    assert allowed * (1 - 1e-5) < loss <= allowed


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_comes_back_from_a_file_and_the_ledger_is_charged_once(kind, tmp_path):
    built = model([6, 2, 4])
    plan = dirdp.plan(ONE, built, mechanism=kind, draws=50)
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again.digest == plan.digest
    assert [part.mechanism for part in again.parts] == [part.mechanism for part in plan.parts]
    assert str(dirdp.report(again, full=True)) == str(dirdp.report(plan, full=True))
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.5))
    release = dirdp.sample(again, built, ledger=ledger)
    # Any number of draws follows from one release.
    assert len(ledger.entries()) == 1
    assert "1-differential privacy" in str(ledger)
    assert dirdp.verify(release)
    with pytest.raises(dirdp.errors.BudgetError):
        dirdp.sample(again, built, ledger=ledger)
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        one, other = (dirdp.sample(p, built, random_seed=4) for p in (plan, again))
    np.testing.assert_array_equal(one["posterior"]["p"], other["posterior"]["p"])
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(again, model([6, 2, 5]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_for_another_number_of_records_is_refused(kind, tmp_path, text_of_facts):
    """The curves of the Hellinger mechanism depend on the number; it may not differ from that of the table."""
    built, path = model([6, 2, 4]), tmp_path / "plan.json"
    plan = dirdp.plan(ONE, built, mechanism=kind)
    dirdp.save(plan, path)
    facts = json.loads(path.read_text())
    facts["tables"][0]["parameters"]["records"] = 11
    facts.pop("digest")
    path.write_text(text_of_facts(facts))
    with pytest.raises(ArgumentError, match="made for another number of records"):
        dirdp.load(path)
    (part,) = plan.parts
    other = dataclasses.replace(part, mechanism=dataclasses.replace(part.mechanism, n_records=11))
    with pytest.raises(ArgumentError, match="made for another number of records"):
        dirdp.sample(dataclasses.replace(plan, parts=(other,)), built)


def test_a_text_with_far_too_many_posteriors_is_refused_at_once(edited):
    release, place = released(HELLINGER, [3, 5]), ("plan", "tables", 0, "parameters")
    many = ((*place, "records"), 10**9), (("plan", "tables", 0, "n_records"), 10**9)
    for edits in (many, ((*place, "accounting"), "exact")):
        for use in (dirdp.verify, dirdp.estimate):
            with pytest.raises(ReleaseError):
                use(edited(release, *(edits if edits is many else [edits]), ((*place, "records"), 9000)))


def test_the_words_about_arithmetic_are_true():
    """No floating-point number meets the counts, but in the weights of the Hellinger mechanism."""
    exact, weighed = (released(kind, [3, 5]) for kind in KINDS)
    assert "nothing was rounded" in str(dirdp.report(exact, full=True))
    assert "nothing was rounded" not in str(dirdp.report(weighed, full=True))
    assert "by weights that were computed in floating point" in " ".join(str(dirdp.report(weighed, full=True)).split())


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_does_not_account_for_is_refused_with_a_way_out(kind):
    private = {"adjacency": "add-remove", "n_records": 24, "contribution": 1}
    capped = {"unit": "person", "contribution": 2, "n_records": 10}
    for built, options in (
        (model([20, 0, 4]), private),
        (people(), capped),
        (rows(), {"contribution": 1}),
        (model([0, 0, 0]), {}),
    ):
        with pytest.raises(ArgumentError, match="Use mechanism='geometric'"):
            dirdp.sample(ONE, built, mechanism=kind, **options)
        assert dirdp.sample(ONE, built, mechanism="geometric", **options)


def test_records_of_a_person_are_accounted_for_or_refused():
    """Three records of a person need three times the noise; the Hellinger mechanism accounts for one."""
    one, three = (mechanism_of(TRUNCATED, [9, 9, 6], contribution=m) for m in (1, 3))
    assert three.scale == pytest.approx(3 * one.scale, rel=1e-9)
    plan = dirdp.plan(ONE, people(3), mechanism=TRUNCATED, unit="person")
    assert plan.parts[0].mechanism.contributed.records == 3
    assert plan.parts[0].mechanism.scale == pytest.approx(3)
    assert dirdp.verify(dirdp.sample(plan, people(3)))
    with pytest.raises(ArgumentError, match=r"one record of a person.*'truncated-geometric'"):
        dirdp.plan(ONE, people(3), mechanism=HELLINGER, unit="person")
    assert dirdp.sample(ONE, people(1), mechanism=HELLINGER, unit="person")


def test_the_hellinger_mechanism_is_for_few_categories_and_posteriors():
    for counts in ([1, 2, 3, 4], [1] * 1000):
        with pytest.raises(ArgumentError, match="two or three categories"):
            released(HELLINGER, counts)
    for counts in ([10_000, 7], [80, 80, 8]):
        with pytest.raises(UnattainableError, match="Use mechanism='geometric'"):
            released(HELLINGER, counts)
    assert released("geometric", [10_000, 7])


@pytest.mark.parametrize("counts", [[10**7, 0], [500, 500, 0, 9 * 10**6], list(range(1000))], ids=["2", "4", "1000"])
def test_truncated_noise_of_large_tables(counts):
    release = released(TRUNCATED, counts, draws=3)
    assert dirdp.verify(release)
    off = np.abs(release["posterior"]["p"].values - np.array(counts) / sum(counts))
    assert off.max() < 0.02


def test_neither_is_ever_the_best():
    """So auto does not consider them: exact and simulated errors of estimates at the same guarantee."""
    for counts, epsilon in itertools.product(([3, 5], [30, 10], [7, 7, 6]), (0.1, 3.0)):
        one, prior = dirdp.PureDP(epsilon=epsilon), np.ones(len(counts))
        kinds = ("geometric", *KINDS) if len(counts) == 2 else ("geometric", TRUNCATED)
        errors = [estimate_error(mechanism_of(kind, counts, one), prior, sum(counts)).kl for kind in kinds]
        # Both errors are simulated, to about 6 %. With two categories truncated noise is as good.
        assert errors[0] < 1.08 * errors[1]
        if len(counts) == 2:
            assert errors[0] < errors[2]
    choice = dirdp.plan(ONE, model([3, 5]), mechanism="auto").parts[0].choice
    assert not set(dict(choice.expected_kl)) & set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_planning_functions_know_them(kind):
    options = {"prior": [1, 1], "n_records": 20, "mechanism": kind, "public_totals": True}
    loose, tight = (dirdp.expected_error(dirdp.PureDP(epsilon=epsilon), **options) for epsilon in (4.0, 0.5))
    assert 0 < loose < tight
    table = {name: value for name, value in options.items() if name != "mechanism"}
    assert dirdp.privacy_utility([ONE], **table, mechanisms=[kind]).expected_kl[kind][0] > 0
    with pytest.raises(ArgumentError, match="Use mechanism='geometric'"):
        dirdp.expected_error(ONE, **options, adjacency="add-remove")


def test_a_diagnosis_is_known_and_an_error_shows_no_count():
    built = model([6, 0, 2])
    for kind in KINDS:
        release = released(kind, [6, 0, 2])
        assert dirdp.report(dirdp.diagnose(release, built, draws=100))
        mechanism = mechanism_of(kind, [6, 0, 2])
        with pytest.raises(DataError, match="do not add up to the public") as error:
            mechanism.draw([6, 0, 11], 1, sampler="exact")
        assert "17" not in str(error.value)
