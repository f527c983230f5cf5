"""A release of a sparse table, from the counts to the file and back."""

import math

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

from pymc_dirdp import ApproxDP, Ledger, PureDP, analyse, estimate, fit, load, report, sample, save, statement, verify
from pymc_dirdp.errors import (
    ArgumentError,
    BudgetError,
    CategoriesFromDataWarning,
    DataError,
    ReleaseError,
    SeededReleaseWarning,
    UnsupportedModelError,
)
from pymc_dirdp.inference.sparse_cells import SparsePosterior
from pymc_dirdp.releases.opened import sparse_release
from pymc_dirdp.sparse import SparsePrior, count_sparse, least_threshold, release_sparse

GUARANTEE = PureDP(epsilon=1)
PLACES = {"zip": ["1", "2", "3"], "ill": [False, True]}


def test_a_table_of_ten_billion_cells():
    threshold = least_threshold(GUARANTEE, 10**10)
    release = release_sparse(GUARANTEE, [7, 10**10 - 1], [1000, 2000], 10**10, threshold=threshold)
    found = release["noisy_counts"]
    listed = dict(zip(found["cell"].values.tolist(), found["noisy_count"].values.tolist(), strict=True))
    assert {7, 10**10 - 1} <= set(listed)
    assert abs(listed[7] - 1000) < 100
    assert len(listed) < 20
    assert verify(release)
    assert verify(release).stated == GUARANTEE


def test_it_comes_back_from_a_file(tmp_path):
    release = release_sparse(GUARANTEE, [2**62 + 1], [10**6], 2**63 - 1, threshold=100)
    release.to_netcdf(tmp_path / "release.nc")
    with xr.open_datatree(tmp_path / "release.nc") as back:
        assert back.identical(release)
        assert verify(back)
        assert 2**62 + 1 in back["noisy_counts"]["cell"].values
        assert back["mechanism"].attrs["n_cells"] == str(2**63 - 1)


def test_an_empty_list_is_a_release(tmp_path):
    release = release_sparse(GUARANTEE, [], [], 1000, threshold=200)
    release.to_netcdf(tmp_path / "release.nc")
    with xr.open_datatree(tmp_path / "release.nc") as back:
        assert verify(back)
        assert estimate(back, prior=SparsePrior(10, 3)).cells == ()


def test_cells_with_labels():
    table = pd.DataFrame({"zip": ["3", "1"], "ill": [True, False], "n": [900, 500]})
    release = release_sparse(GUARANTEE, table, table["n"], categories=PLACES, threshold=50)
    assert release["noisy_counts"]["cell"].values.tolist() == [0, 5]
    found = estimate(release, prior=SparsePrior(1500, 4))
    assert found.cells == (("1", False), ("3", True))
    assert found.frame().loc[[("3", True)], "count"].item() == pytest.approx(900, abs=60)
    assert verify(release)


def test_from_a_group_by_and_from_records():
    """A group-by of pandas, its long form, and the records themselves."""
    rng = np.random.default_rng(1)
    records = pd.DataFrame({"zip": rng.choice(["1", "2"], 4000), "ill": rng.random(4000) < 0.5})
    sizes = records.groupby(["zip", "ill"]).size().rename("n").reset_index()
    tables = [
        release_sparse(GUARANTEE, sizes, sizes["n"], categories=PLACES, threshold=50),
        release_sparse(GUARANTEE, records, categories=PLACES, threshold=50),
        release_sparse(GUARANTEE, [0] * 1000 + [3] * 1000 + [1, 2] * 1000, n_cells=6, threshold=50),
    ]
    for table in tables:
        assert table["noisy_counts"]["cell"].values.tolist() == [0, 1, 2, 3]
        assert table["noisy_counts"]["noisy_count"].sum() == pytest.approx(4000, abs=150)


def test_counts_of_another_order_are_refused():
    table = pd.DataFrame({"zip": ["1", "2"], "ill": [True, False], "n": [900, 500]})
    other = table["n"].sort_values()
    with pytest.raises(DataError, match="different indexes"):
        release_sparse(GUARANTEE, table, other, categories=PLACES, threshold=50)
    with pytest.raises(DataError, match="different indexes"):
        release_sparse(GUARANTEE, table["n"], other, 1000, threshold=50)
    release_sparse(GUARANTEE, table, other.to_numpy(), categories=PLACES, threshold=50)


def test_people_with_several_records():
    release = release_sparse(
        GUARANTEE, [3], [500], 10**6, threshold=150, adjacency="add-remove", unit="patient", contribution=4
    )
    assert release["mechanism"].attrs["scale"] == pytest.approx(4.0)
    assert release["privacy"].attrs["neighbours"] == "the records of one patient, at most 4, appear or disappear"
    assert verify(release)
    with pytest.raises(ArgumentError, match="unit='patient'"):
        release_sparse(GUARANTEE, [3], [500], 10**6, threshold=150, contribution=4)
    release_sparse(GUARANTEE, [3], [500], 10**6, threshold=150, unit="patient", contribution=4)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"n_cells": None}, ArgumentError, "Say what the whole table is"),
        ({"categories": {"zip": ["1"]}}, ArgumentError, "Say what the whole table is"),
        ({"threshold": 0}, ArgumentError, "not private either"),
        ({"threshold": 3}, ArgumentError, "empty cells would be listed"),
        ({"n_cells": 2**63}, ArgumentError, "below 2\\*\\*63"),
        ({"n_cells": 1}, ArgumentError, "n_cells"),
        ({"guarantee": 1.0}, ArgumentError, "guarantee"),
        ({"adjacency": "one"}, ArgumentError, "adjacency"),
        ({"contribution": 0, "unit": "person"}, ArgumentError, "contribution"),
        ({"unit": ""}, ArgumentError, "unit"),
        ({"unit": "a\nb"}, ArgumentError, "unit"),
        ({"ledger": 3}, ArgumentError, "Ledger"),
        ({"cells": ["a"]}, DataError, "integers"),
        ({"cells": [5, 5], "counts": None, "n_cells": 5}, DataError, "outside"),
        ({"cells": ["a"], "counts": None}, DataError, "integers"),
        ({"cells": [5, 5], "counts": [1, 2]}, DataError, "twice"),
        ({"cells": ["a"], "n_cells": None, "categories": {"zip": ["a", "b"]}}, ArgumentError, "columns by name"),
        ({"cells": {"zap": ["a"]}, "n_cells": None, "categories": {"zip": ["a", "b"]}}, ArgumentError, "no column"),
        (
            {"cells": {"zip": ["c"]}, "n_cells": None, "categories": {"zip": ["a", "b"]}, "threshold": 20},
            DataError,
            "does not declare",
        ),
        ({"cells": {"zip": ["c"]}, "n_cells": None, "categories": {"zip": [1, "b"]}}, UnsupportedModelError, "kinds"),
    ],
)
def test_what_is_refused(given, error, says):
    arguments = {"guarantee": GUARANTEE, "cells": [5], "counts": [700], "n_cells": 10**10, "threshold": 60}
    with pytest.raises(error, match=says) as caught:
        release_sparse(**(arguments | given))
    assert "700" not in str(caught.value)


def test_categories_read_off_the_data_are_noticed():
    table = pd.DataFrame({"zip": ["1", "2"], "n": [100, 200]})
    with pytest.warns(CategoriesFromDataWarning):
        release_sparse(GUARANTEE, table, table["n"], categories={"zip": table["zip"]}, threshold=20)


def test_a_seed_is_marked():
    with pytest.warns(SeededReleaseWarning):
        release = release_sparse(GUARANTEE, [5], [700], 10**6, threshold=60, random_seed=1)
    assert release["mechanism"].attrs["randomness"] == "seed"
    assert not verify(release)
    assert "Not private" in verify(release).headline


def test_a_reservation_is_used():
    ledger = Ledger(ApproxDP(epsilon=1.5, delta=1e-6), unit="person")
    ledger.reserve(GUARANTEE, what="cells")
    release_sparse(GUARANTEE, [5], [1], 10**6, threshold=60, unit="person", ledger=ledger.using(1))
    assert ledger.left["epsilon"] == pytest.approx(0.5)
    assert ledger.entries()[1].uses == 1


def test_the_ledger_is_charged_before_the_counts_are_looked_at():
    ledger = Ledger(ApproxDP(epsilon=1.5, delta=1e-6), unit="person")
    with pytest.raises(DataError, match="The ledger has been charged"):
        release_sparse(GUARANTEE, [5], [-1], 10**6, threshold=60, unit="person", ledger=ledger)
    assert ledger.left["epsilon"] == pytest.approx(0.5)
    with pytest.raises(BudgetError):
        release_sparse(GUARANTEE, [5], [1], 10**6, threshold=60, unit="person", ledger=ledger)
    assert len(ledger.entries()) == 1
    # An error about public arguments costs nothing.
    with pytest.raises(ArgumentError):
        release_sparse(PureDP(epsilon=0.1), [5], [1], 10**6, threshold=0, unit="person", ledger=ledger)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("label", ["\ud800", "a\nb", "\u202eb", "e\u0301", "a\x00"])
def test_what_no_text_shows_is_not_charged(label):
    """Found by attack: a table with half a character among its labels was charged, and could not be saved."""
    ledger = Ledger(GUARANTEE)
    for categories in ({"city": [label, "\u00e9"]}, {f"city {label}/": ["a", "b"]}):
        records = {name: ["a"] for name in categories}
        with pytest.raises((ArgumentError, UnsupportedModelError)):
            release_sparse(GUARANTEE, records, categories=categories, threshold=60, ledger=ledger)
    assert ledger.entries() == ()


def test_what_reads_other_releases_says_what_reads_this_one():
    release = release_sparse(GUARANTEE, [5], [700], 10**6, threshold=60)
    for read in (statement, fit):
        with pytest.raises(ReleaseError, match="verify, report, estimate and analyse take"):
            read(release)


def test_nothing_secret_is_published():
    """The counts are large primes, which appear nowhere; noisy ones do."""
    counts = np.array([1_000_003, 1_000_033, 1_000_037])
    release = release_sparse(ApproxDP(epsilon=1e-4, delta=1e-9), [5, 6, 7], counts, 1000, threshold=10**6 // 8)
    text = str([node.to_dataset().to_dict() for node in release.subtree])
    assert not any(str(count) in text for count in counts)
    assert math.isfinite(release["privacy"].attrs["pure_epsilon"])


def test_what_count_sparse_found_is_released():
    """Oracle: the release of the same cells and counts under the same seed."""
    records = {"who": ["p", "q", "q", "r"] * 300, "zip": ["3", "1", "1", "2"] * 300, "ill": [True, False] * 600}
    found = count_sparse(records, ["zip", "ill"], categories=PLACES)
    same = dict.fromkeys(("random_seed",), 5) | {"threshold": 50}
    with pytest.warns(SeededReleaseWarning):
        one = release_sparse(GUARANTEE, found, **same)
    with pytest.warns(SeededReleaseWarning):
        other = release_sparse(GUARANTEE, records, categories=PLACES, **same)
    assert one.identical(other)
    assert verify(release_sparse(GUARANTEE, found, threshold=50))


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_unit_of_sparse_counts_is_protected(adjacency):
    records = {"who": ["p", "q", "q", "r"] * 300, "zip": ["3", "1", "1", "2"] * 300}
    found = count_sparse(records, ["zip"], categories=PLACES, unit="who", contribution=4)
    ledger = Ledger(PureDP(epsilon=1), unit="who", adjacency=adjacency)
    release = release_sparse(GUARANTEE, found, threshold=100, adjacency=adjacency, ledger=ledger)
    privacy, scale = release["privacy"].attrs, release["mechanism"].attrs["scale"]
    assert (privacy["unit"], privacy["contribution"]) == ("who", 4)
    # All records of a person leave, or leave and others come.
    assert scale == pytest.approx(4.0 if adjacency == "add-remove" else 8.0)
    assert ledger.entries()[0].terms.contribution == 4
    assert verify(release)


@pytest.mark.parametrize("form", [np.asarray, list, lambda counts: counts.astype(float)])
def test_counts_that_have_lost_their_unit_are_refused_after_the_charge(form):
    records = {"who": ["p", "q", "q", "r"] * 300, "zip": ["3", "1", "1", "2"] * 300}
    found = count_sparse(records, ["zip"], categories=PLACES, unit="who", contribution=4)
    ledger = Ledger(PureDP(epsilon=1))
    with pytest.raises(DataError, match=r"counts= has the same numbers as counts of at most 4 records of each 'who'"):
        release_sparse(GUARANTEE, found.cells, form(found.counts), 10**4, threshold=100, ledger=ledger)
    assert len(ledger.entries()) == 1
    release_sparse(GUARANTEE, found.cells, form(found.counts), 10**4, threshold=100, unit="who", contribution=4)


@pytest.mark.parametrize(
    "given",
    [{"unit": "who"}, {"contribution": 1}, {"categories": PLACES}, {"n_cells": 6}, {"counts": [1]}],
)
def test_sparse_counts_know_what_was_declared(given):
    found = count_sparse({"who": ["p"], "zip": ["3"]}, ["zip"], categories=PLACES, unit="who", contribution=4)
    with pytest.raises(ArgumentError, match="Leave these arguments out"):
        release_sparse(GUARANTEE, found, threshold=100, **given)


PRIOR = SparsePrior(n_records=5000, n_occupied=100)


def coins():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("heads", n=100, p=p, observed=30)
    return model


@pytest.fixture
def release():
    rng = np.random.default_rng(1)
    cells = rng.choice(10**8, 100, replace=False)
    return release_sparse(PureDP(epsilon=1), cells, rng.geometric(0.02, 100), 10**8, threshold=30)


def test_estimates_are_those_of_the_distribution(release):
    stored = sparse_release(release)
    distribution = SparsePosterior(stored.mechanism, stored.output.noisy, PRIOR.over(10**8))
    found = estimate(release, prob=(0.5, 0.9), prior=PRIOR)
    assert found.cells == tuple(release["noisy_counts"]["cell"].values.tolist())
    for i, z in enumerate(found.noisy_counts.tolist()):
        each, x = distribution.given(np.array([z])), np.arange(z + 300)
        weights = np.exp(each.log_pmf(x.astype(float), np.zeros(len(x), dtype=int)))
        mean, up = weights @ x, np.cumsum(weights)
        assert up[-1] == pytest.approx(1, abs=1e-12)
        assert (found.means[i], found.sds[i] ** 2, found.occupied[i]) == pytest.approx(
            (mean, weights @ (x - mean) ** 2, weights[1:].sum())
        )
        for m, ends in enumerate(([0.25, 0.75], [0.05, 0.95])):
            assert found.intervals[m, i].tolist() == np.searchsorted(up, ends).tolist()
    assert found.total_mean == pytest.approx(found.means.sum() + distribution.n_others * distribution.other.means[0])
    x = np.arange(1, 300)
    weights = np.exp(distribution.other.log_pmf(x.astype(float), np.zeros(len(x), dtype=int)))
    assert found.other_occupied == pytest.approx(weights.sum(), rel=1e-9)
    assert list(found.frame().columns)[:4] == ["noisy_count", "count", "count_sd", "count_low_0.5"]
    assert f"{len(found.cells) - 20} more cells are listed" in str(found)
    assert "any other" in found._repr_html_()


def test_draws_agree_with_estimates(release):
    found, drawn = estimate(release, prior=PRIOR), analyse(release, draws=4000, chains=1, random_seed=1, prior=PRIOR)
    counts = drawn["latent_counts"]["count"].values[0]
    assert np.all(np.abs(counts.mean(axis=0) - found.means) < 6 * (found.sds + 0.01) / np.sqrt(4000))
    total = drawn["latent_counts"]["total"].values[0]
    assert abs(total.mean() - found.total_mean) < 5 * found.total_sd / np.sqrt(4000)
    assert np.array_equal(total, counts.sum(axis=1) + drawn["latent_counts"]["others"].values[0])
    assert drawn["latent_counts"]["count"].dims == ("chain", "draw", "listed")
    assert "5000 records are in about 100 of 100000000" in drawn.attrs["conditional_on"]


def test_bad_arguments(release):
    for use in (estimate, analyse):
        with pytest.raises(ArgumentError, match="Say what you expect"):
            use(release)
        with pytest.raises(ArgumentError, match="n_prior is for tables of a model"):
            use(release, prior=PRIOR, n_prior=1000)
    table = sample(PureDP(epsilon=1), coins(), mechanism="geometric")
    with pytest.raises(ArgumentError, match="SparsePrior is for a release of a sparse table"):
        estimate(table, prior=PRIOR)
    with pytest.raises(ArgumentError, match="below n_records and below the number of cells"):
        estimate(release, prior=SparsePrior(n_records=1e12, n_occupied=1e11))
    with pytest.raises(ArgumentError):
        estimate(release, prior=SparsePrior(10, 20))
    with pytest.raises(ArgumentError):
        estimate(release, prob=(1.5,), prior=PRIOR)
    with pytest.raises(ArgumentError):
        analyse(release, draws=0, chains=1, prior=PRIOR)
    with pytest.raises(ReleaseError, match="Expected a release"):
        estimate(None, prior=PRIOR)


@pytest.fixture
def forged(release, edited):
    """It states half of the epsilon that it keeps."""
    return edited(release, (("guarantee", "epsilon"), 0.5), (("statement",), lambda said: said.replace("1", "0.5", 1)))


def test_the_same_verbs_take_a_list_of_cells(release, tmp_path):
    save(release, tmp_path / "cells.json")
    back = load(tmp_path / "cells.json")
    assert verify(back)
    for full in (False, True):
        text = str(report(back, full=full))
        assert f"{len(release['noisy_counts']['cell'])} of 100000000 cells" in text
        assert "epsilon 1 at delta 0" in text
        assert max(map(len, text.splitlines())) <= 80


def test_nothing_is_inferred_from_a_contradiction(forged):
    assert "does not follow" in str(report(forged)).replace("\n", " ")
    with pytest.raises(ReleaseError, match="does not follow"):
        estimate(forged, prior=PRIOR)
