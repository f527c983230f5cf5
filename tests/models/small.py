"""Small models of this room's tests: shares, what is observed of them, and the model around."""

import numpy as np
import pymc as pm

RNG = np.random.default_rng(2)
N = 30
YES, CODES, OTHER = (RNG.integers(0, k, N) for k in (2, 3, 2))


def beta(*shape, name="b", prior=(1, 1), **options):
    return pm.Beta(name, *prior, shape=shape or None, **options)


def simplex(*shape, name="p"):
    return pm.Dirichlet(name, np.ones(shape))


def tossed(p, observed=YES, name="y", **options):
    return pm.Bernoulli(name, p=p, observed=observed, **options)


def coded(p, observed=CODES, name="y", **options):
    return pm.Categorical(name, p=p, observed=observed, **options)


def tried(p, n, observed, name="y"):
    return pm.Binomial(name, n=n, p=p, observed=observed)


def counted(p, observed, n=None, name="y", **options):
    n = observed.sum(axis=-1) if n is None else n
    return pm.Multinomial(name, n=n, p=p, observed=observed, **options)


def built(build, **options):
    with pm.Model(**options) as model:
        build()
    return model
