"""Estimates and draws from a release of a sparse table."""

import numpy as np
import pymc as pm
import pytest

from pymc_dirdp import PureDP, analyse, estimate, load, report, sample, save, verify
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.sparse_law import SparseLaw
from pymc_dirdp.releases.opened import sparse_release
from pymc_dirdp.sparse import SparsePrior, release_sparse

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


def test_estimates_are_those_of_the_law(release):
    stored = sparse_release(release)
    law = SparseLaw(stored.mechanism, stored.output.noisy, PRIOR.over(10**8))
    found = estimate(release, prob=(0.5, 0.9), prior=PRIOR)
    assert found.cells == tuple(release["noisy_counts"]["cell"].values.tolist())
    for i, z in enumerate(found.noisy_counts.tolist()):
        each = law.given(z)
        assert (found.means[i], found.sds[i] ** 2, found.occupied[i]) == pytest.approx(
            (each.mean, each.variance, each.occupied)
        )
        assert found.intervals[:, i].tolist() == [list(each.interval(0.5)), list(each.interval(0.9))]
    assert found.total_mean == pytest.approx(found.means.sum() + law.n_others * law.other.mean)
    assert found.other_occupied == law.other.occupied
    assert list(found.frame().columns)[:4] == ["noisy_count", "count", "count_sd", "count_low_0.5"]
    assert f"{len(found.cells) - 20} more cells are listed" in str(found)
    assert "any other" in found._repr_html_()


def test_draws_agree_with_estimates(release):
    found, drawn = estimate(release, prior=PRIOR), analyse(release, draws=4000, random_seed=1, prior=PRIOR)
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
        analyse(release, draws=0, prior=PRIOR)
    with pytest.raises(ReleaseError, match="Expected a release"):
        estimate(None, prior=PRIOR)


def test_the_same_verbs_take_a_list_of_cells(release, tmp_path, edited):
    save(release, tmp_path / "cells.json")
    back = load(tmp_path / "cells.json")
    assert verify(back)
    for full in (False, True):
        text = str(report(back, full=full))
        assert f"{len(release['noisy_counts']['cell'])} of 100000000 cells" in text
        assert "epsilon 1 at delta 0" in text
        assert max(map(len, text.splitlines())) <= 80
    forged = edited(release, (("guarantee", "epsilon"), 0.5), (("promise",), lambda said: said.replace("1", "0.5", 1)))
    assert "does not follow" in str(report(forged)).replace("\n", " ")


def test_nothing_is_inferred_from_a_contradiction(release, edited):
    forged = edited(release, (("guarantee", "epsilon"), 0.5), (("promise",), lambda said: said.replace("1", "0.5", 1)))
    with pytest.raises(ReleaseError, match="does not follow"):
        estimate(forged, prior=PRIOR)
