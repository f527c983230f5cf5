"""Synthetic data from a release: post-processing, so the guarantee covers it, and no observation is read."""

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dirdp.checks import integer
from pymc_dirdp.releases.opened import opened
from pymc_dirdp.releases.trees import tree_of
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["sample_posterior_predictive"]


def sample_posterior_predictive(
    release: xr.DataTree, model: pm.Model | None = None, *, n_records: int, random_seed: Seed = None
) -> xr.DataTree:
    """Synthetic counts drawn from the released probabilities.

    `pm.sample_posterior_predictive` evaluates the model, reads its number of trials and puts the observed counts into
    the tree that it returns. This function uses the release alone.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, also from a file, see :func:`pymc_dirdp.load`.
    model : pymc.Model, optional
        Not read. It is accepted because PyMC's function has it; the release holds everything that is needed.
    n_records : int
        The number of synthetic records for every row of every table. You choose it, because the sizes of the rows are
        data.
    random_seed : int, SeedSequence, Generator or None
        A seed is harmless here: the probabilities are already public.

    Returns
    -------
    synthetic : xarray.DataTree
        Group `posterior_predictive` with the observed variables' names and dims `chain`, `draw`, then those of the
        table: counts of each category, or of successes for a Beta. A conditional table gives counts for each
        configuration of its parents.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=0.8, delta=1e-6), model)
    >>> made = dirdp.releases.sample_posterior_predictive(release, n_records=100)
    >>> int(made["posterior_predictive"]["students"].sum())
    100
    """
    size = integer(0, n_records=n_records)
    stored = opened(release)
    rng = generator(random_seed)
    datasets = {}
    posterior = stored.tree.children["posterior"].to_dataset()
    for name, table in stored.tables.items():
        p = posterior[name]
        for observed in table.observed_names:
            if table.family == "beta":
                values = rng.binomial(size, np.minimum(p.values, 1.0))
            else:
                # The released components sum to 1 up to rounding, and NumPy refuses a sum above 1.
                values = rng.multinomial(size, p.values / p.values.sum(axis=-1, keepdims=True))
            datasets[observed] = p.copy(data=np.asarray(values))
    dataset = xr.Dataset(datasets, attrs=posterior.attrs | {"n_records": size})
    return tree_of({"/posterior_predictive": dataset})
