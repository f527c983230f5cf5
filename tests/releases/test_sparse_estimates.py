"""Estimates and draws from a release of a sparse table."""

import numpy as np
import pytest

from pymc_dirdp import PureDP
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.sparse_law import SparseLaw, SparsePrior
from pymc_dirdp.releases.opened import opened_sparse
from pymc_dirdp.sparse import analyse_sparse, estimate_sparse, release_sparse

PRIOR = {"n_records": 5000, "n_occupied": 100}


@pytest.fixture
def release():
    rng = np.random.default_rng(1)
    cells = rng.choice(10**8, 100, replace=False)
    return release_sparse(PureDP(epsilon=1), cells, rng.geometric(0.02, 100), 10**8, threshold=30)


def test_estimates_are_those_of_the_law(release):
    stored = opened_sparse(release)
    law = SparseLaw(stored.mechanism, stored.output.noisy, SparsePrior(10**8, 5000, 100))
    found = estimate_sparse(release, prob=(0.5, 0.9), **PRIOR)
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
    found, drawn = estimate_sparse(release, **PRIOR), analyse_sparse(release, draws=4000, random_seed=1, **PRIOR)
    counts = drawn["latent_counts"]["count"].values[0]
    assert np.all(np.abs(counts.mean(axis=0) - found.means) < 6 * (found.sds + 0.01) / np.sqrt(4000))
    total = drawn["latent_counts"]["total"].values[0]
    assert abs(total.mean() - found.total_mean) < 5 * found.total_sd / np.sqrt(4000)
    assert np.array_equal(total, counts.sum(axis=1) + drawn["latent_counts"]["others"].values[0])
    assert drawn["latent_counts"]["count"].dims == ("chain", "draw", "listed")
    assert "5000 records are in about 100 of 100000000" in drawn.attrs["conditional_on"]


def test_bad_arguments(release):
    with pytest.raises(ArgumentError):
        estimate_sparse(release, n_records=10, n_occupied=20)
    with pytest.raises(ArgumentError):
        estimate_sparse(release, prob=(1.5,), **PRIOR)
    with pytest.raises(ArgumentError):
        analyse_sparse(release, draws=0, **PRIOR)
    with pytest.raises(ReleaseError, match="Expected a release"):
        estimate_sparse(None, **PRIOR)


def test_nothing_is_inferred_from_a_contradiction(release, edited):
    forged = edited(release, (("guarantee", "epsilon"), 0.5), (("promise",), lambda said: said.replace("1", "0.5", 1)))
    with pytest.raises(ReleaseError, match="does not follow"):
        estimate_sparse(forged, **PRIOR)
