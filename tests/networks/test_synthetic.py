"""Synthetic records given a release: their distribution, their labels, and what they cannot be made of."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import beta, chi2

import pymc_dirdp as dirdp
from pymc_dirdp.networks.systematic import systematic
from tests.planned import one_row, planned_sample

CATEGORIES = {"class": ["cat", "dog", "hen"], "legs": [2, 4], "wild": [False, True]}
STRUCTURE = {"class": [], "legs": ["class"], "wild": ["class", "legs"]}
RNG = np.random.default_rng(5)
CLASS = RNG.choice(CATEGORIES["class"], 300, p=[0.5, 0.3, 0.2])
FRAME = pd.DataFrame({"class": CLASS, "legs": np.where(CLASS == "hen", 2, 4), "wild": RNG.random(300) < 0.2})
# Systematic sampling of the records of an estimate.
DRAWN = np.random.default_rng(7)
ROW_SHARES = DRAWN.dirichlet(np.ones(4), size=6)
OF_ROW = DRAWN.integers(0, 6, 500)


@pytest.fixture(scope="module")
def network():
    model = dirdp.bayesian_network(FRAME, STRUCTURE, categories=CATEGORIES)
    return dirdp.sample(dirdp.PureDP(epsilon=5.0), model, mechanism="geometric")


def rates(**options):
    with pm.Model(coords={"department": list("AB")}):
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[3, 9], p=rate, observed=[1, 4])
        return planned_sample(dirdp.PureDP(epsilon=5.0), mechanism="geometric", **options)


def flat(counts=(30, 20, 10), guarantee=None, **options):
    guarantee = dirdp.PureDP(epsilon=1.0) if guarantee is None else guarantee
    return planned_sample(guarantee, one_row(counts), **{"mechanism": "geometric"} | options)


def test_records_have_the_columns_labels_and_types_of_the_data(network):
    records = dirdp.synthetic(network, n_sets=3)
    assert set(records) == set(FRAME)
    assert records.index.names == ["set", "record"]
    assert records.groupby(level="set").size().tolist() == [300, 300, 300]
    for name in CATEGORIES:
        assert set(records[name]) <= set(CATEGORIES[name])
        assert records[name].dtype == pd.DataFrame({name: FRAME[name].to_numpy()})[name].dtype
    again = dirdp.bayesian_network(records.loc[0], STRUCTURE, categories=CATEGORIES)
    assert dirdp.tables(again) == dirdp.tables(dirdp.bayesian_network(FRAME, STRUCTURE, categories=CATEGORIES))


def test_each_cell_has_its_share_of_one_draw(network):
    """Oracle: the product of the draw's own shares, cell by cell, by chi-square; another draw does not pass."""
    analysis = dirdp.analyse(network, 2, chains=1, random_seed=2)
    records = dirdp.synthetic(analysis, 20_000, random_seed=3)
    seen = dirdp.count(records, ["class", "legs", "wild"], categories=CATEGORIES)

    def p_value(draw):
        one = analysis["posterior"].to_dataset().isel(chain=0, draw=draw)
        p = one["p_class"].values[:, None, None] * one["p_legs"].values[..., None] * one["p_wild"].values
        return chi2.sf(np.sum((seen - 20_000 * p) ** 2 / (20_000 * p)), p.size - 1)

    assert p_value(0) > 1e-6
    assert p_value(1) < 1e-8


def test_sets_differ_as_the_draws_given_the_release_do():
    release = flat((60, 30, 10))
    estimates = dirdp.estimate(release).tables["p"]
    records = dirdp.synthetic(release, 1000, 300, random_seed=1)
    shares = records["hair"].eq("black").groupby(level="set").mean().to_numpy()
    mean, sd = estimates.share_means[0], estimates.share_sds[0]
    sampling = np.sqrt((mean * (1 - mean) - sd**2) / 1000)
    assert abs(shares.mean() - mean) < 5 * np.hypot(sd, sampling) / np.sqrt(300)
    assert shares.std() == pytest.approx(np.hypot(sd, sampling), rel=0.2)


def test_rows_without_shares_have_those_of_their_records():
    """Departments have no table, so theirs are drawn from a Dirichlet given how many records their rows have."""
    analysis = dirdp.analyse(rates(), 800, chains=1, random_seed=1)
    records = dirdp.synthetic(analysis, 500, 800, random_seed=2)
    assert list(records) == ["department", "rate_outcome"]
    in_a = records["department"].eq("A").groupby(level="set").mean().to_numpy()
    totals = analysis["latent_counts"]["rate"].sum("rate_outcome").values[0, :, 0]
    distribution = beta(1 + totals, 13 - totals)
    assert abs(in_a.mean() - distribution.mean().mean()) < 5 * in_a.std() / np.sqrt(800)
    assert in_a.var() == pytest.approx(np.mean(distribution.var()) + np.var(distribution.mean()) + 0.25 / 500, rel=0.2)
    success = records[records["department"] == "A"]["rate_outcome"].eq("success").groupby(level="set").mean()
    assert abs(success.mean() - float(analysis["posterior"]["rate"].sel(department="A").mean())) < 0.02


def test_the_number_of_records():
    release = flat()
    assert len(dirdp.synthetic(release)) == 60
    assert dirdp.synthetic(release, 0).shape == (0, 1)
    records = dirdp.synthetic(release, 7, 3, random_seed=4)
    assert len(records) == 21
    assert records.equals(dirdp.synthetic(release, 7, 3, random_seed=4))
    assert not records.equals(dirdp.synthetic(release, 7, 3, random_seed=5))
    private = flat(adjacency="add-remove", n_records=50)
    assert len(dirdp.synthetic(private, 10)) == 10
    approximate, drawn = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), {"mechanism": "dirichlet"}
    draw = flat(guarantee=approximate, adjacency="add-remove", n_records=50, **drawn)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"n_prior.*dirdp\.analyse"):
        dirdp.synthetic(draw, 10)
    analysis = dirdp.analyse(private, 20, chains=1, n_prior=200, random_seed=1)
    sizes = dirdp.synthetic(analysis, n_sets=20).groupby(level="set").size()
    assert sizes.tolist() == analysis["latent_counts"]["p"].sum("hair").values[0].tolist()
    assert len(set(sizes)) > 1
    with pytest.raises(dirdp.errors.ArgumentError, match="one of 20 draws"):
        dirdp.synthetic(analysis, n_sets=21)


def test_tables_that_make_up_no_record():
    observed = {"one": [[2, 3], [3, 3]], "two": [[2, 3], [3, 1], [2, 2]], "three": [5, 6]}
    dims = {"one": ("row", "hair"), "two": ("line", "eye"), "three": ("hair",)}
    with pm.Model(coords={"row": ["u", "v"], "line": ["a", "b", "c"], "hair": ["x", "y"], "eye": ["s", "t"]}):
        for name, counts in observed.items():
            p = pm.Dirichlet(name, a=np.ones(np.shape(counts)), dims=dims[name])
            pm.Multinomial(f"n_{name}", n=np.sum(counts, axis=-1), p=p, observed=counts)
        options = {"contribution": 1, "public": ["n_one", "n_three"]}
        release = dirdp.sample(dirdp.PureDP(epsilon=5.0), mechanism="geometric", **options)
    for tables, message in (
        (None, r"Two tables.* have shares of 'hair'.*tables=\['three'\]"),
        (["one", "two"], r"shares of 'row', 'line'.*tables=\['two'\]"),
        (["two", "three"], "different numbers"),
        ([], "name some of"),
        (["four"], "name some of"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.synthetic(release, tables=tables)
    assert set(dirdp.synthetic(release, 5, tables=["two", "three"])) == {"line", "eye", "hair"}
    assert list(dirdp.synthetic(release, tables="two")) == ["line", "eye"]


def test_a_damaged_analysis(network):
    for group, damage in (
        ("latent_counts", lambda counts: counts.isel(draw=slice(1))),
        ("latent_counts", lambda counts: -counts),
        ("posterior", lambda draws: draws.drop_vars("p_class")),
        ("posterior", lambda draws: draws * 1.1),
    ):
        tree = dirdp.analyse(network, 3, chains=1)
        tree[group] = xr.DataTree(damage(tree[group].to_dataset().copy(deep=True)))
        for use in (dirdp.synthetic, lambda given: dirdp.log_likelihood(given, FRAME)):
            with pytest.raises(dirdp.errors.ArgumentError, match="p_class"):
                use(tree)


def test_each_record_has_its_category_with_the_probability_of_its_row():
    rows, times = OF_ROW[:20], 3000
    rng = np.random.default_rng(1)
    seen = np.stack([systematic(rows, ROW_SHARES, rng) for _ in range(times)])
    for shares, passes in ((ROW_SHARES, True), (np.roll(ROW_SHARES, 1, axis=0), False)):
        p = shares[rows]
        found = np.stack([(seen == category).mean(axis=0) for category in range(4)], axis=1)
        z = (found - p) / np.sqrt(p * (1 - p) / times)
        assert bool(np.abs(z).max() < 5.5) is passes


def test_counts_of_rows_and_of_rows_in_order_are_as_expected_up_to_rounding():
    codes = systematic(OF_ROW, ROW_SHARES, np.random.default_rng(0))
    found = np.stack([np.bincount(codes[row == OF_ROW], minlength=4) for row in range(6)])
    expected = np.bincount(OF_ROW, minlength=6)[:, None] * ROW_SHARES
    for end in range(1, 7):
        off = np.abs(found[:end].sum(axis=0) - expected[:end].sum(axis=0))
        assert np.all(off <= np.array([1, 2, 3, 4]) + 1e-9)
    assert np.all(np.abs(found - expected) <= np.array([1, 2, 3, 4]) + 1e-9)


def test_certain_categories_no_records_and_two_children_of_the_same_parents():
    """Without a random order within rows, both children would go up and down together."""
    rng, certain = np.random.default_rng(0), np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert systematic(np.array([0, 1, 0, 1, 1]), certain, rng).tolist() == [1, 2, 1, 2, 2]
    assert systematic(np.zeros(0, dtype=int), certain, rng).size == 0
    assert systematic(np.zeros(3, dtype=int), np.ones((1, 1)), rng).tolist() == [0, 0, 0]
    rows = np.repeat([0, 1], 5000)
    one, other = (systematic(rows, np.full((2, 2), 0.5), rng) for _ in range(2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / 100
