"""Tree counts and seed germination: from the published tables to a release. Skipped without the data folder.

One record is one tree or one seed, so each says `contribution=1`.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.models.observations import read_counts

DATA = Path(__file__).parents[3] / "shared" / "data"
LOOSE = dirdp.RenyiDP(order=1.01, epsilon=1e4)


def table(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the data folder with {name} is not beside the project")
    return pd.read_csv(path)


def test_trees_that_share_one_composition():
    """50 plots of Barro Colorado Island, 225 species: rows of a Multinomial that share p are summed."""
    trees = table("bci_tree_counts.csv.gz").to_numpy()
    with pm.Model(coords={"species": range(225)}) as model:
        p = pm.Dirichlet("p", np.ones(225), dims="species")
        pm.Multinomial("trees", n=trees.sum(axis=1), p=p, observed=trees)
    (found,) = dirdp.tables(model)
    np.testing.assert_array_equal(read_counts(found, model), trees.sum(axis=0))
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1, delta=1e-6), model, contribution=1)
    assert plan.parts[0].n_records == trees.sum() == 21457
    release = dirdp.sample(LOOSE, model, contribution=1)
    share = trees.sum(axis=0) / trees.sum()
    # Of the posterior itself: within six standard errors of the shares.
    drawn = release["posterior"]["p"].values[0, 0]
    assert np.all(np.abs(drawn - share) < 6 * np.sqrt((share + 1e-4) / 21457) + 225 / 21457 / 50)


def test_trees_with_a_composition_for_each_plot(tmp_path):
    trees = table("bci_tree_counts.csv.gz").to_numpy()
    with pm.Model() as model:
        pm.DirichletMultinomial("trees", n=trees.sum(axis=1), a=np.full(225, 0.5), observed=trees)
    (found,) = dirdp.tables(model)
    assert found.shape == (50, 225)
    np.testing.assert_array_equal(read_counts(found, model), trees)
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1, delta=1e-6), model, contribution=1)
    np.testing.assert_allclose(release["posterior"]["trees_p"].sum("trees_p_dim_1"), 1)
    release.to_netcdf(tmp_path / "trees.nc", engine="h5netcdf")
    saved = (tmp_path / "trees.nc").read_bytes()
    for plot in trees[:5]:
        assert plot.astype("<i8").tobytes() not in saved
        assert plot.astype("<f8").tobytes() not in saved


def test_germination_by_seed_and_root():
    """21 plates (Crowder 1978): a rate for each seed and root extract, by their codes."""
    plates = table("orobanche_germination.csv.gz")
    seed = (plates["seed"] == "O75").to_numpy().astype(int)
    root = (plates["root"] == "BEAN").to_numpy().astype(int)
    with pm.Model(coords={"seed": ["O73", "O75"], "root": ["CUCUMBER", "BEAN"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims=("seed", "root"))
        pm.Binomial("germinated", n=plates["n"], p=rate[seed, root], observed=plates["y"])
    (found,) = dirdp.tables(model)
    by_hand = plates.groupby(["seed", "root"])[["y", "n"]].sum()
    counts = read_counts(found, model)
    for i, s in enumerate(["O73", "O75"]):
        for j, r in enumerate(["CUCUMBER", "BEAN"]):
            y, n = by_hand.loc[(s, r)]
            np.testing.assert_array_equal(counts[i, j], [y, n - y])
    release = dirdp.sample(LOOSE, model, contribution=1)
    drawn = release["posterior"]["rate"].sel(seed="O75", root="CUCUMBER").item()
    y, n = by_hand.loc[("O75", "CUCUMBER")]
    assert abs(drawn - y / n) < 6 * np.sqrt(0.25 / n)


def test_germination_with_a_rate_for_each_plate():
    plates = table("orobanche_germination.csv.gz")
    with pm.Model() as model:
        pm.BetaBinomial("germinated", n=plates["n"], alpha=1, beta=1, observed=plates["y"])
    (found,) = dirdp.tables(model)
    np.testing.assert_array_equal(read_counts(found, model), np.stack([plates["y"], plates["n"] - plates["y"]], axis=1))
    assert dirdp.sample(LOOSE, model, contribution=1)["posterior"]["germinated_p"].shape == (1, 1, 21)
