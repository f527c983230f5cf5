"""The secret private posterior as an ordinary PyMC model, to compare the closed forms with NUTS."""

from collections.abc import Iterable

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.curator.laws import Law, simplex
from pymc_dirdp.progress import Bar

__all__ = ["nuts", "tempered_model"]


def tempered_model(laws: Iterable[Law]) -> pm.Model:
    """Priors as they are, and the likelihood of the counts to the power of each weight, as a `pm.Potential`.

    A power of a likelihood is no distribution of data, so nothing is observed in this model.
    """
    # The model has no parent: inside `with model:` it would become a part of the user's own model.
    with pm.Model(model=None) as model:
        for law in laws:
            name, prior, weight = law.table.name, law.prior, law.power * law.counts
            if law.table.family == "beta":
                p = pm.Beta(name, prior[..., 0], prior[..., 1], shape=prior.shape[:-1])
                log_likelihood = weight[..., 0] * pm.math.log(p) + weight[..., 1] * pm.math.log1p(-p)
            else:
                p = pm.Dirichlet(name, prior, shape=prior.shape)
                log_likelihood = weight * pm.math.log(p)
            pm.Potential(f"{name}_tempered_likelihood", log_likelihood.sum())
    return model


def nuts(
    laws: tuple[Law, ...], *, draws: int, tune: int, chains: int, rng: np.random.Generator, bar: Bar
) -> tuple[dict[str, Array], xr.Dataset]:
    """Draws of each table by NUTS, shape `(chains, draws, *table.shape)`, and the sampler's own statistics."""
    with tempered_model(laws):
        trace = pm.sample(
            draws,
            tune=tune,
            chains=chains,
            # A step takes microseconds, and starting a process takes seconds.
            cores=1,
            nuts_sampler="pymc",
            random_seed=int(rng.integers(2**31)),
            # PyMC's own bar is off, because `quiet` is for all that it prints.
            progressbar=False,
            callback=lambda trace, draw: bar.advance(),
            quiet=True,
            # The group `convergence` has these checks, without warnings.
            compute_convergence_checks=False,
        )
    posterior = trace["posterior"]
    drawn = {law.table.name: simplex(law.table, posterior[law.table.name].values) for law in laws}
    return drawn, trace["sample_stats"].to_dataset()
