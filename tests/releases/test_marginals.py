"""Marginals of whole models, from the plan to the readers of the file."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnattainableError, UnsupportedModelError
from pymc_dirdp.mechanisms.registry import Marginals
from pymc_dirdp.releases import release as release_module
from tests.mechanisms.test_marginals import exact_delta
from tests.planned import planned_sample

CATEGORIES = {"a": ["x", "y"], "b": ["p", "q", "r"], "c": ["no", "yes"]}
NETWORK = {"a": [], "b": ["a"], "c": ["a", "b"]}
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
MARGINALS = {"mechanism": "marginals"}


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.choice(["x", "y"], n, p=[0.3, 0.7])
    b = np.where(rng.random(n) < 0.6, np.where(a == "x", "p", "q"), "r")
    return {"a": a, "b": b, "c": np.where(rng.random(n) < np.where(b == "q", 0.8, 0.1), "yes", "no")}


@pytest.fixture(scope="module")
def network():
    return dirdp.bayesian_network(records(500), NETWORK, categories=CATEGORIES)


@pytest.fixture(scope="module")
def release(network):
    return planned_sample(TARGET, network, **MARGINALS)


def test_a_plan_reads_no_count_and_shows_what_will_be_measured(network, monkeypatch):
    monkeypatch.setattr(release_module, "count_readings", None)
    plan = dirdp.plan(TARGET, network, **MARGINALS)
    assert {part.table.name: part.mechanism.marginals for part in plan.parts} == {
        "p_a": ((0,),),
        "p_b": ((1,), (0, 1)),
        "p_c": ((2,), (0, 2), (1, 2), (0, 1, 2)),
    }
    text = str(dirdp.report(plan, full=True))
    assert "Plan of a private estimate of p_a, p_b, p_c" in text
    marginals = "; ".join(line for _, line in dict(dirdp.report(plan, full=True).sections)["Marginals"])
    for part in plan.parts:
        for sd in part.mechanism.noise_sds:
            assert f"noise of standard deviation {sd:.4g} a cell, {sd / 500:.2g} of all records" in marginals
    assert "a x b x c" in text
    assert "dirdp.analyse draws" in " ".join(text.split())
    loss, allowed = TARGET.loss(plan.composition), TARGET.allowed
    assert 0.999 * allowed < loss <= allowed


def test_a_release_can_be_checked_written_and_read(release, network, tmp_path):
    assert dirdp.verify(release)
    assert release["posterior"].sizes["draw"] == 1
    assert release["posterior"]["p_c"].dims == ("chain", "draw", "a", "b", "c")
    np.testing.assert_allclose(release["posterior"]["p_c"].sum("c"), 1.0)
    assert "not a draw" in release.attrs["estimate"]
    noisy = release["mechanism/p_c"]
    assert noisy["noisy_counts_0_2"].dims == ("a", "c")
    assert noisy["noisy_counts_0_1_2"].dims == ("a", "b", "c")
    assert list(noisy["c"].values) == ["no", "yes"]
    release.to_netcdf(tmp_path / "release.nc")
    with xr.open_datatree(tmp_path / "release.nc") as read:
        assert dirdp.verify(read.load())
        assert read.identical(release)
        assert str(dirdp.report(read, full=True)) == str(dirdp.report(release, full=True))
        assert "fitted to the noisy counts" in str(dirdp.statement(read))


def test_a_plan_comes_back_from_its_file(network, tmp_path):
    for target, options in (
        (TARGET, {"mechanism": Marginals(weights={("a", "b"): 3})}),
        (dirdp.PureDP(epsilon=1), MARGINALS),
        (TARGET, {"contribution": 2, **MARGINALS}),
    ):
        plan = dirdp.plan(target, network, **options)
        dirdp.save(plan, tmp_path / "plan.json", overwrite=True)
        read = dirdp.load(tmp_path / "plan.json")
        assert read.digest == plan.digest
        assert [part.mechanism for part in read.parts] == [part.mechanism for part in plan.parts]
        assert dirdp.sample(read, network).attrs["plan_digest"] == plan.digest


def test_posteriors_are_around_what_is_fitted(release, network):
    analysis = dirdp.analyse(release, 500, random_seed=1)
    assert np.all(analysis["sample_stats"]["effective_draws"] > 100)
    assert "Hamiltonian" in analysis.attrs["method"]
    estimates = dirdp.estimate(release, [0.95])
    assert all("effective sample size" in one for one in estimates.conditions)
    for name in ("p_a", "p_b", "p_c"):
        drawn, found = analysis["posterior"][name], estimates.tables[name]
        assert analysis["latent_counts"][name].dims == drawn.dims
        assert np.all(analysis["latent_counts"][name].sum(drawn.dims[2:]) == 500)
        low, high = found.share_intervals[0].T
        # The fit shrinks what noise hides further.
        fitted = release["posterior"][name].values.ravel()
        assert np.mean((low <= fitted) & (fitted <= high)) > 0.8
        np.testing.assert_allclose(drawn.mean(("chain", "draw")).values.ravel(), found.share_means, atol=0.1)
    # Of two releases of the same records more is known than of one.
    two = dirdp.estimate([release, planned_sample(TARGET, network, **MARGINALS)], [0.95])
    assert np.mean(two.tables["p_b"].share_sds) < 0.95 * np.mean(estimates.tables["p_b"].share_sds)
    with pytest.raises(ArgumentError, match="sums of effects"):
        dirdp.estimate(release, prior=1.0)
    with pytest.raises(ArgumentError, match="product over cells"):
        dirdp.releases.analyst_model(release)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_nothing_tells_the_counts_of_neighbours_apart_by_more_than_the_plan_says(adjacency):
    """A network of two variables.

    The exact distributions of all that is published, for all neighbours of up to two records.
    """
    two = {"a": ["x", "y"], "b": ["p", "q"]}
    model = dirdp.bayesian_network({"a": list("xy"), "b": list("pp")}, {"a": [], "b": ["a"]}, categories=two)
    plan = dirdp.plan(
        dirdp.ApproxDP(epsilon=3.0, delta=0.01), model, mechanism=Marginals(noise="gaussian"), adjacency=adjacency
    )
    parts = [one.noise for planned in plan.parts for one in planned.mechanism.noisy_marginals]

    def published(data):
        """The marginals {a}, {b} and {a, b} of records over the four cells, without noise."""
        cells = np.bincount(data, minlength=4).reshape(2, 2)
        return [cells.sum(axis=1), cells.sum(axis=0), cells.ravel()]

    changes = {}
    for n in (1, 2):
        for data in itertools.combinations_with_replacement(range(4), n):
            others = [data[:-1]] if adjacency == "add-remove" else [(*data[:-1], cell) for cell in range(4)]
            for other in others:
                pair = zip(published(data), published(other), strict=True)
                change = [one - two for one, two in pair]
                # The noise of the cells of a marginal is alike, so their order makes no difference.
                changes[tuple(tuple(sorted(one.tolist())) for one in change)] = change
    for epsilon in (0.0, 0.5, 3.0):
        reached = max(exact_delta(parts, change, epsilon) for change in changes.values())
        bound = plan.composition.delta(epsilon)
        assert 0.97 * bound < reached <= bound + 1e-15


def test_pure_privacy_has_noise_that_adds_up_to_the_public_number(network, edited):
    release = planned_sample(dirdp.PureDP(epsilon=1.0), network, **MARGINALS)
    for name in NETWORK:
        group = release[f"mechanism/p_{name}"]
        assert group.attrs["mechanism"] == "ZeroSumMarginalsMechanism"
        assert all(group[noisy].sum() == 500 for noisy in group.data_vars if noisy.startswith("noisy_counts"))
    assert dirdp.verify(release)
    with pytest.raises(dirdp.errors.ReleaseError, match="do not add up"):
        dirdp.verify(edited(release, (("output", "p_b", "noisy_counts_1", 0), lambda count: count + 1)))


def test_a_private_number_of_records(network):
    plan = dirdp.plan(TARGET, network, **MARGINALS, adjacency="add-remove")
    assert all(part.n_records is None for part in plan.parts)
    # Without a number to plan for, all marginals have the same noise.
    assert len({sd for part in plan.parts for sd in part.mechanism.noise_sds}) == 1
    with_size = dirdp.plan(TARGET, network, **MARGINALS, adjacency="add-remove", n_records=10**5)
    assert len({sd for part in with_size.parts for sd in part.mechanism.noise_sds}) > 1
    kinds = set()
    for noise in ("gaussian", "geometric"):
        release = dirdp.sample(TARGET, network, mechanism=Marginals(noise=noise), adjacency="add-remove")
        assert dirdp.verify(release)
        kinds |= {release["mechanism/p_c"].attrs["mechanism"]}
    assert kinds == {"MarginalsMechanism"}


def test_a_list_of_marginals(network):
    listed = Marginals(measure=["a", ("b", "a"), ("c", "b")], weights={("c", "b"): 4}, noise="gaussian")
    plan = dirdp.plan(TARGET, network, mechanism=listed)
    by_name = {part.table.name: part.mechanism for part in plan.parts}
    assert by_name["p_b"].marginals == ((0, 1),)
    assert by_name["p_c"].marginals == ((1, 2),)
    assert by_name["p_b"].noise_sds[0] == pytest.approx(2 * by_name["p_c"].noise_sds[0], rel=1e-3)
    assert dirdp.verify(dirdp.sample(plan, network))


def tables_of_others():
    with pm.Model(coords={"hair": ["dark", "fair"]}) as model:
        for name, n in (("one", 20), ("two", 20)):
            p = pm.Dirichlet(f"p_{name}", [1, 1], dims="hair")
            pm.Multinomial(name, n=n, p=p, observed=[n - 5, 5])
    return model


def other_sizes():
    with pm.Model(coords={"hair": ["dark", "fair"], "eye": ["blue", "brown"]}) as model:
        for dim, n in (("hair", 20), ("eye", 30)):
            p = pm.Dirichlet(f"p_{dim}", [1, 1], dims=dim)
            pm.Multinomial(f"n_{dim}", n=n, p=p, observed=[n - 5, 5])
    return model


def circle():
    with pm.Model(coords={"a": [0, 1], "b": [0, 1]}) as model:
        p = pm.Dirichlet("p", np.ones((2, 2)), dims=("a", "b"))
        q = pm.Dirichlet("q", np.ones((2, 2)), dims=("b", "a"))
        pm.Multinomial("x", n=[5, 5], p=p, observed=[[2, 3], [3, 2]])
        pm.Multinomial("y", n=[4, 6], p=q, observed=[[2, 2], [3, 3]])
    return model


def survey():
    with pm.Model(coords={"person": range(30), "item": ["i", "j"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims="item")
        pm.Bernoulli("answer", p=rate, observed=np.ones((30, 2), dtype=int), dims=("person", "item"))
    return model


def same_name():
    with pm.Model(coords={"state": [0, 1]}) as model:
        p = pm.Dirichlet("p", np.ones((2, 2)), dims=("state", "state"))
        pm.Multinomial("x", n=[5, 5], p=p, observed=[[2, 3], [3, 2]])
    return model


def wide(rows=101):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((rows, 100, 10)))
        pm.Multinomial("x", n=0, p=p, observed=np.zeros((rows, 100, 10), dtype=int))
    return model


def test_as_many_cells_as_a_fit_may_have_are_planned():
    (part,) = dirdp.plan(TARGET, wide(100), **MARGINALS).parts
    assert part.table.shape == (100, 100, 10)


def test_a_survey_of_people_with_an_answer_to_each_item(tmp_path):
    """The marginal over all items holds two records of a person, and the table one in each of two rows."""
    weighed = Marginals(noise="gaussian", weights={("item", "rate_outcome"): 1})
    plan = dirdp.plan(TARGET, survey(), unit="person", mechanism=weighed)
    mechanism = plan.parts[0].mechanism
    adds = [mechanism.contributed.in_marginal(mechanism.shape, axes) for axes in mechanism.marginals]
    assert adds == [(2, 1), (1, 2)]
    # The squares of the shifts: 2 * 2 ** 2 for the sums, and 2 in each of two rows.
    one = dirdp.plan(TARGET, survey(), contribution=1, mechanism=weighed).parts[0].mechanism
    assert mechanism.noise_sds[0] == pytest.approx(math.sqrt((8 + 4) / (2 + 2)) * one.noise_sds[0], rel=1e-3)
    dirdp.save(dirdp.sample(plan, survey()), tmp_path / "survey.nc")
    release = dirdp.load(tmp_path / "survey.nc")
    assert dirdp.verify(release)
    assert "person" in str(dirdp.report(release, full=True))
    assert dirdp.fit(release, consistency="tables", progressbar=False)["posterior"]["rate"].shape == (1, 1, 2)
    assert np.all(dirdp.estimate(release).tables["rate"].share_sds > 0)
    # Noise that adds up to 0 is for records that lie anywhere.
    geometric = planned_sample(dirdp.PureDP(epsilon=1.0), survey(), unit="person", **MARGINALS)
    assert geometric["mechanism/rate"].attrs["mechanism"] == "MarginalsMechanism"
    assert dirdp.verify(geometric)


APART = {"disjoint": [["p_hair"], ["p_eye"]]}
# A model, what is said of it, what is said in the place of that, and the error.
REFUSED = [
    (tables_of_others, {}, {"mechanism": "gaussian"}, UnsupportedModelError, "both hold"),
    (other_sizes, {"public": ["n_hair"]}, {"mechanism": "gaussian"}, UnsupportedModelError, "different numbers"),
    (circle, {}, {"mechanism": "gaussian"}, UnsupportedModelError, "in a cycle"),
    (other_sizes, APART, {"mechanism": "gaussian"}, UnsupportedModelError, "groups of disjoint"),
    (survey, {"contribution": 2, "released_draws": 2}, {"released_draws": 1}, ArgumentError, "released_draws out"),
    (wide, {}, None, ArgumentError, "101000 cells"),
    (
        survey,
        {"contribution": 2, "mechanism": Marginals(noise="gaussian"), "guarantee": dirdp.PureDP(epsilon=1)},
        MARGINALS,
        UnattainableError,
        "geometric",
    ),
    (survey, {"contribution": 2, "weights": {"rate": 2}}, {"weights": None}, ArgumentError, "weights divide"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("build", "said", "way_out", "error", "message"), REFUSED)
def test_what_cannot_be_measured_is_refused_with_a_way_out(build, said, way_out, error, message):
    model, said = build(), {"guarantee": TARGET} | MARGINALS | said
    guarantee = said.pop("guarantee")
    with pytest.raises(error, match=message):
        dirdp.plan(guarantee, model, **said)
    if way_out is not None:
        assert dirdp.verify(planned_sample(guarantee, model, **said | way_out))


def test_a_family_of_too_many_cells_is_named_before_anything_is_read_or_charged(monkeypatch):
    data = {"a": list(range(5)), "b": list(range(5))}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories={"a": range(400), "b": range(300)})
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-4))
    head = ledger.head
    monkeypatch.setattr(release_module, "count_readings", None)
    with pytest.raises(ArgumentError, match=r"'p_b' has 120000 cells.* at most 100000\. Give 'b' fewer parents"):
        planned_sample(TARGET, model, ledger=ledger, **MARGINALS)
    assert ledger.head == head
    with pytest.raises(ArgumentError, match="1000000000000 cells"):
        dirdp.bayesian_network({}, {"a": [], "b": ["a"]}, categories={"a": range(10**6), "b": range(10**6)})


def test_marginals_are_planned_for_models_of_other_axes_alone():
    with pytest.raises(UnsupportedModelError, match="same name"):
        dirdp.plan(TARGET, same_name(), **MARGINALS)
    with pytest.raises(ArgumentError, match="models only"):
        dirdp.expected_error(TARGET, prior=[1, 1], n_records=50, mechanism="marginals")


def test_a_plan_of_marginals_states_one_estimate(network, tmp_path, text_of_facts):
    """Found by attack: an edited plan stated two draws, and its release too, which holds one estimate."""
    plan = dirdp.plan(TARGET, network, **MARGINALS)
    with pytest.raises(ArgumentError, match="a single estimate"):
        replace(plan, released_draws=2)
    (tmp_path / "plan.json").write_text(text_of_facts(plan.facts | {"released_draws": 2}), encoding="utf-8")
    with pytest.raises(ArgumentError, match="a single estimate"):
        dirdp.load(tmp_path / "plan.json")
