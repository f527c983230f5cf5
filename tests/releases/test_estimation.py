"""Estimates as a small table: text, HTML and frame, and what they say against draws."""

import subprocess
import sys

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def rates(**options):
    with pm.Model(coords={"department": list("AB")}):
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=[30, 40], p=rate, observed=[10, 20])
        return dirdp.sample(APPROX, **options)


def one_row(**options):
    with pm.Model():
        p = pm.Dirichlet("p", a=[1, 2, 3])
        pm.Multinomial("students", n=60, p=p, observed=[30, 20, 10])
        return dirdp.sample(APPROX, **options)


def test_the_table_is_shown_and_given():
    found = dirdp.estimate(one_row(), prob=(0.5, 0.9))
    frame = found.frame()
    assert list(frame.index) == ["p[0]", "p[1]", "p[2]"]
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["count"].sum() == pytest.approx(60)
    assert (frame["share_low_0.9"] < frame["share_low_0.5"]).all()
    assert (frame["share_high_0.5"] < frame["share_high_0.9"]).all()
    for text in (str(found), found._repr_html_()):
        assert "Typical error" in text
        assert "90 %" in text
        assert "60 records, which is public" in text
        assert "averages" not in text


def test_rows_have_their_labels_and_agree_with_draws():
    release = rates()
    found, analysis = dirdp.estimate(release), dirdp.analyse(release, 20_000, chains=1, random_seed=2)
    assert list(found.frame().index[:2]) == ["rate[A, success]", "rate[A, failure]"]
    assert "averages" not in str(found)
    frame = found.frame().iloc[::2]
    drawn = analysis["posterior"]["rate"].values[0]
    np.testing.assert_allclose(frame["share"], drawn.mean(axis=0), atol=5 * 0.3 / np.sqrt(20_000))
    np.testing.assert_allclose(frame["share_sd"], drawn.std(axis=0), rtol=0.05)
    np.testing.assert_allclose(frame["share_low_0.8"], np.quantile(drawn, 0.1, axis=0), atol=0.02)
    counts = analysis["latent_counts"]["rate"].values[0, ..., 0]
    np.testing.assert_allclose(frame["count_sd"], counts.std(axis=0), rtol=0.05)
    assert np.all(np.abs(frame["count_high_0.8"] - np.quantile(counts, 0.9, axis=0)) <= 2)


def test_private_numbers_are_summed_over_too():
    release = one_row(mechanism="geometric", adjacency="add-remove")
    found, analysis = (
        dirdp.estimate(release, n_prior=500),
        dirdp.analyse(release, 20_000, chains=1, n_prior=500, random_seed=2),
    )
    drawn, frame = analysis["latent_counts"]["p"].values[0], found.frame()
    assert "averages" not in str(found)
    np.testing.assert_allclose(frame["count"], drawn.mean(axis=0), atol=5 * drawn.std(axis=0).max() / np.sqrt(20_000))
    np.testing.assert_allclose(frame["count_sd"], drawn.std(axis=0), rtol=0.05)
    assert np.all(np.abs(frame["count_high_0.8"] - np.quantile(drawn, 0.9, axis=0)) <= 1)


def test_a_number_that_next_to_nothing_is_known_of_is_summed_over():
    """A draw says next to nothing of a private number of records."""
    release = one_row(adjacency="add-remove", n_records=60)
    found, analysis = (
        dirdp.estimate(release, n_prior=5000),
        dirdp.analyse(release, 20_000, chains=1, n_prior=5000, random_seed=2),
    )
    drawn, shares, frame = analysis["latent_counts"]["p"].values[0], analysis["posterior"]["p"].values[0], found.frame()
    assert "averages" not in str(found)
    assert np.all(np.abs(frame["count"] - drawn.mean(axis=0)) < 5 * drawn.std(axis=0) / np.sqrt(20_000))
    np.testing.assert_allclose(frame["share_high_0.8"], np.quantile(shares, 0.9, axis=0), atol=0.01)


def test_inferences_need_no_pymc(tmp_path):
    one_row(mechanism="geometric").to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    code = (
        "import sys, xarray, pymc_dirdp\n"
        f"with xarray.open_datatree({str(tmp_path / 'release.nc')!r}, engine='h5netcdf') as release:\n"
        "    pymc_dirdp.analyse(release, 5, chains=1), pymc_dirdp.estimate(release)\n"
        "assert not {'pymc', 'pytensor', 'arviz', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_probabilities_have_to_be_some():
    for wrong in ([], [0.5, 1.0], [0]):
        with pytest.raises(ArgumentError, match="prob"):
            dirdp.estimate(one_row(), prob=wrong)
