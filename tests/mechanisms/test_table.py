"""What a mechanism for a table says of itself holds: its likelihood is a product, and a file's facts make it again."""

import numpy as np
import pytest

from pymc_dirdp.mechanisms.base import FileField
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism

MECHANISMS = [
    GeometricMechanism(np.ones(2), 1.3),
    DiscreteGaussianMechanism(np.ones(2), 1.2),
    DirichletMechanism([0.7, 1.0, 2.0], 0.4),
    DirichletMechanism([[0.7, 1.0], [2.0, 0.5]], 0.6),
]


def name_of(mechanism):
    return type(mechanism).__name__


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name_of)
def test_a_likelihood_is_a_product_over_cells_and_rows(mechanism):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 9, (6, *mechanism.shape)).astype(float)
    output = mechanism.releases(x[0], 1, random_seed=6)[0]
    # The factors of cells and totals, as functions of the counts of each row.
    d, whole = mechanism.shape[-1], np.zeros(6)
    for row, counts in zip(mechanism.row_likelihoods(output), np.moveaxis(x.reshape(6, -1, d), 1, 0), strict=True):
        whole += row.cell_loglik(counts, np.arange(d)).sum(axis=-1) + row.total_loglik(counts.sum(axis=-1))
    np.testing.assert_allclose(mechanism.log_likelihood(output, x), whole, rtol=1e-12)
    # The ratio, which leaves out what is the same for both, is the difference.
    ratio = mechanism.log_likelihood_ratio(output[None], x[0], x[1])
    np.testing.assert_allclose(ratio, whole[0] - whole[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name_of)
def test_facts_make_the_mechanism_again(mechanism):
    given = {fact.field: getattr(mechanism, fact.field) for fact in mechanism.facts if fact.is_argument}
    assert type(mechanism).from_dict({**given, "adjacency": "replace-one", "contribution": 1}) == mechanism
    assert all(isinstance(fact, FileField) and hasattr(mechanism, fact.field) for fact in mechanism.facts)
    assert len({fact.name for fact in mechanism.facts}) == len(mechanism.facts)
