"""Small models of this room's tests: shares, what is observed of them, and the model around."""

import sys
from types import ModuleType

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import change_dist_size

try:
    from pymc_extras import DiscreteMarkovChain
except ImportError:
    DiscreteMarkovChain = None

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


# Observed Markov chains of pymc-extras; where it is not installed, a double with the inputs and the name of its op.
# It is no dependency of the tests, because in 2026 it needs an old PyMC.


class DiscreteMarkovChainRV(SymbolicRandomVariable):
    """An op with the inputs of the original.

    A matrix, a number of steps, the distribution of the first states, a generator.
    """

    default_output = 1
    _print_name = ("DiscreteMC", "")

    def __init__(self, *args, n_lags, time_varying_P, **kwargs):
        self.n_lags, self.time_varying_P = n_lags, time_varying_P
        super().__init__(*args, **kwargs)


def markov_chain(name, P, first, observed, *, n_lags=1, time_varying_P=False, dims=None):
    """An observed chain of the model on the context stack. `first` is an unnamed distribution."""
    if DiscreteMarkovChain is not None:
        return DiscreteMarkovChain(
            name, P=P, init_dist=first, observed=observed, n_lags=n_lags, time_varying_P=time_varying_P, dims=dims
        )
    module = sys.modules.setdefault("pymc_extras.distributions.timeseries", ModuleType("timeseries"))
    module.DiscreteMarkovChainRV = DiscreteMarkovChainRV
    shape = np.shape(observed.eval() if hasattr(observed, "eval") else observed)
    given = [pt.as_tensor(P), pt.constant(shape[-1] - n_lags), change_dist_size(first, (*shape[:-1], n_lags))]
    rng = pytensor.shared(np.random.default_rng())
    inner = [variable.type() for variable in given]
    states = ",".join("p" * (n_lags + 1))
    op = DiscreteMarkovChainRV(
        inputs=[*inner, rng],
        outputs=[pm.Uniform.dist(rng=rng).owner.outputs[0], pt.zeros(shape, dtype="int64") + inner[1]],
        n_lags=n_lags,
        time_varying_P=time_varying_P,
        extended_signature=f"({'u,' * time_varying_P}{states}),(),(p),[rng]->[rng],(t)",
    )
    return pm.modelcontext(None).register_rv(op(*given, rng), name, observed=observed, dims=dims)


def categorical(*shares):
    """An unnamed distribution of the first states."""
    return pm.Categorical.dist(p=shares[0] if len(shares) == 1 else np.array(shares))
