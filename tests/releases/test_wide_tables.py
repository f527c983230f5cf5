"""Tree counts and seed germination: from wide and grouped tables to a release.

One record is one tree or one seed, so each says `contribution=1`.
"""

import numpy as np
import pandas as pd
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.models.observations import find_observations, read_counts

LOOSE = dirdp.RenyiDP(order=1.01, epsilon=1e4)

# Crowder (1978), Applied Statistics 27, 34-37, Table 3: of n seeds of Orobanche on each of 21 plates y germinated.
PLATES = pd.DataFrame(
    {
        "seed": ["O75"] * 11 + ["O73"] * 10,
        "root": ["BEAN"] * 5 + ["CUCUMBER"] * 6 + ["BEAN"] * 5 + ["CUCUMBER"] * 5,
        "n": [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7],
        "y": [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3],
    }
)


def forest():
    """Trees of 225 species on 50 plots, most species rare: as wide and as uneven as a real census."""
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.full(225, 0.3))
    return np.array([rng.multinomial(n, rng.dirichlet(40 * shares + 1e-9)) for n in rng.integers(340, 610, 50)])


def test_trees_that_share_one_composition():
    """50 plots, 225 species: rows of a Multinomial that share p are summed."""
    trees = forest()
    with pm.Model(coords={"species": range(225)}) as model:
        p = pm.Dirichlet("p", np.ones(225), dims="species")
        pm.Multinomial("trees", n=trees.sum(axis=1), p=p, observed=trees)
    (found,) = dirdp.tables(model)
    np.testing.assert_array_equal(read_counts(find_observations([found], model)), trees.sum(axis=0))
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1, delta=1e-6), model, contribution=1)
    assert plan.parts[0].n_records == trees.sum()
    release = dirdp.sample(LOOSE, model, contribution=1)
    share = trees.sum(axis=0) / trees.sum()
    # Of the posterior itself: within six standard errors of the shares.
    drawn = release["posterior"]["p"].values[0, 0]
    assert np.all(np.abs(drawn - share) < 6 * np.sqrt((share + 1e-4) / trees.sum()) + 225 / trees.sum() / 50)


def test_trees_with_a_composition_for_each_plot(tmp_path):
    trees = forest()
    with pm.Model() as model:
        pm.DirichletMultinomial("trees", n=trees.sum(axis=1), a=np.full(225, 0.5), observed=trees)
    (found,) = dirdp.tables(model)
    assert found.shape == (50, 225)
    np.testing.assert_array_equal(read_counts(find_observations([found], model)), trees)
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1, delta=1e-6), model, contribution=1)
    np.testing.assert_allclose(release["posterior"]["trees_p"].sum("trees_p_dim_1"), 1)
    release.to_netcdf(tmp_path / "trees.nc", engine="h5netcdf")
    saved = (tmp_path / "trees.nc").read_bytes()
    for plot in trees[:5]:
        assert plot.astype("<i8").tobytes() not in saved
        assert plot.astype("<f8").tobytes() not in saved


def test_germination_by_seed_and_root():
    """21 plates (Crowder 1978): a rate for each seed and root extract, by their codes."""
    plates = PLATES
    seed = (plates["seed"] == "O75").to_numpy().astype(int)
    root = (plates["root"] == "BEAN").to_numpy().astype(int)
    with pm.Model(coords={"seed": ["O73", "O75"], "root": ["CUCUMBER", "BEAN"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims=("seed", "root"))
        pm.Binomial("germinated", n=plates["n"], p=rate[seed, root], observed=plates["y"])
    (found,) = dirdp.tables(model)
    by_hand = plates.groupby(["seed", "root"])[["y", "n"]].sum()
    counts = read_counts(find_observations([found], model))
    for i, s in enumerate(["O73", "O75"]):
        for j, r in enumerate(["CUCUMBER", "BEAN"]):
            y, n = by_hand.loc[(s, r)]
            np.testing.assert_array_equal(counts[i, j], [y, n - y])
    release = dirdp.sample(LOOSE, model, contribution=1)
    drawn = release["posterior"]["rate"].sel(seed="O75", root="CUCUMBER").item()
    y, n = by_hand.loc[("O75", "CUCUMBER")]
    assert abs(drawn - y / n) < 6 * np.sqrt(0.25 / n)
