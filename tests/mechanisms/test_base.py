"""What a mechanism says of itself holds: its likelihood adds up to 1, and its samplers have that distribution."""

import dataclasses
import itertools
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import FileField, Mechanism
from pymc_dirdp.mechanisms.choices import QuantilesMechanism, TreeMechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.registry import by_class_name, kinds, noises, registered
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.posterior_mechanism import drawn_from, integer_weights
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.texts.codec import facts_of, value_of
from tests.oracles import drawn_p_value, tables_of

STEPS = 5
WHOLE = [GeometricMechanism(np.ones(2), 1.3), DiscreteGaussianMechanism(np.ones(2), 1.2)]
FINITE = [
    HellingerMechanism([1.0, 0.4], 6, 0.8),
    TruncatedNoiseMechanism([1.0, 1.0, 2.0], 5, 1.5),
    TruncatedNoiseMechanism([1.0, 1.0, 1.0], 4, 1.2, noise_kind="laplace"),
]
URNS = [DirichletMechanism([0.7, 1.0, 2.0], 0.4), DirichletMechanism([[0.7, 1.0], [2.0, 0.5]], 0.6)]


def name_of(value):
    return type(value).__name__ if isinstance(value, Mechanism) else None


def all_outputs(mechanism):
    """All outputs, or all that are likely."""
    d, rows = mechanism.shape[-1], math.prod(mechanism.shape[:-1])
    if mechanism in FINITE:
        tables = list(tables_of((d,), mechanism.n_records))
    elif mechanism in WHOLE:
        tables = list(itertools.product(range(-25, 30), repeat=2))
    else:
        grid = [(2 * c + 1) / (2 * STEPS + d) for c in tables_of((d,), STEPS)]
        tables = list(itertools.product(grid, repeat=rows))
    return np.array(tables, dtype=float).reshape(-1, *mechanism.shape)


@pytest.mark.parametrize("mechanism", [*WHOLE, *URNS, *FINITE], ids=name_of)
def test_exact_outputs_have_the_distribution_of_their_likelihood(mechanism):
    """That of other counts is rejected. Fast samplers are in test_noise.py and test_fast.py."""
    x = np.arange(math.prod(mechanism.shape), dtype=float).reshape(mechanism.shape)
    other = x[..., ::-1] + [3, *[0] * (x.shape[-1] - 1)]
    draws = 2_500
    if mechanism in FINITE:
        x, draws = all_outputs(mechanism)[2], 600
        other = x[::-1]
    outputs = all_outputs(mechanism)
    true, wrong = (np.exp(mechanism.log_likelihood(outputs, data, steps=STEPS)) for data in (x, other))
    assert true.sum() == pytest.approx(1, rel=1e-6)
    drawn = mechanism.releases(x, draws, sampler="exact", random_seed=3, steps=STEPS)
    assert drawn_p_value(drawn, outputs, true) > 1e-6
    assert drawn_p_value(drawn, outputs, wrong) < 1e-6


def test_the_density_of_a_draw_integrates_to_1_and_the_simplex_has_the_same():
    beta = DirichletMechanism([0.9, 1.5], 0.4)
    total = quad(lambda p: math.exp(beta.log_likelihood([p, 1 - p], [2.0, 5.0])), 0, 1)[0]
    assert total == pytest.approx(1, rel=1e-8)
    # A vector of probabilities in the place of counts, and k in the place of r and alpha.
    simplex, p = SimplexMechanism(7.0, SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4)), np.array([0.2, 0.3, 0.5])
    y = np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]])
    dirichlet = DirichletMechanism(7.0 * p, 1.0)
    np.testing.assert_allclose(simplex.log_likelihood(y, p), dirichlet.log_likelihood(y, np.zeros(3)), rtol=1e-12)
    grid = all_outputs(dirichlet)
    urn = np.exp(simplex.log_likelihood(grid, p, steps=STEPS))
    assert urn.sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("mechanism", [*WHOLE, *URNS, *FINITE], ids=name_of)
def test_the_distributions_for_audits_lose_no_more_than_the_curves(mechanism):
    distributions = mechanism.output_distributions(*mechanism.worst_neighbours())
    assert 0.9 * mechanism.delta(0.2) < distributions.delta(0.2) <= mechanism.delta(0.2) * (1 + 1e-9)
    if (stronger := mechanism.stronger(1.5)) is not None:
        assert "same mechanism" in stronger[0]
        assert stronger[1].delta(0.2) > mechanism.delta(0.2)


def test_mechanisms_are_equal_if_their_class_and_fields_are():
    for mechanism in (*WHOLE, *URNS, *FINITE):
        facts = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
        for again in (type(mechanism)(**facts), pickle.loads(pickle.dumps(mechanism))):
            assert again == mechanism
            assert hash(again) == hash(mechanism)
        assert mechanism.summary
    assert len({*WHOLE, *URNS, *FINITE}) == 7
    assert WHOLE[0] != "a mechanism"


def test_what_is_known_has_a_name():
    assert kinds()[0] == "dirichlet"
    assert set(noises()) == {"gaussian", "geometric"}
    assert by_class_name()["DirichletMechanism"] is DirichletMechanism
    with registered(GeometricMechanism):
        assert "geometric" in kinds()
    for call, said in (
        (lambda: URNS[0].checked_sampler("quick"), "quick"),
        (lambda: Mechanism.output_distributions(URNS[0], np.ones(3), np.ones(3)), "The distribution of the output of"),
        (lambda: Mechanism.likelihoods_of_rows(URNS[0], np.ones(3), n_records=3, sampler="fast"), "not a product"),
        (lambda: Mechanism.posterior_parameters(URNS[0], np.ones((1, 3), dtype=int), None), "no private posterior"),
    ):
        with pytest.raises(ArgumentError, match=said):
            call()


# The facts of mechanisms that choose.

CHOICES = [
    QuantilesMechanism(3, n_candidates=9, scale=8.1, adjacency="add-remove", contribution=2),
    TreeMechanism((2, 3), 8.1, 10.3, "geometric"),
]


@pytest.mark.parametrize("mechanism", CHOICES, ids=name_of)
def test_facts_are_the_arguments(mechanism):
    """What else is refused is in `tests/texts/test_codec.py`."""
    facts = facts_of(mechanism)
    assert value_of(type(mechanism), facts) == mechanism == type(mechanism)(**facts)
    assert not any(isinstance(value, tuple) for value in facts.values())
    # It is rounded up, so no text holds this number.
    assert facts_of(value_of(type(mechanism), facts | {"scale": 8.1}))["scale"] != 8.1
    for name in facts:
        with pytest.raises((ArgumentError, TypeError)):
            value_of(type(mechanism), facts | {name: True})


# Mechanisms for a table.


@pytest.mark.parametrize("mechanism", [*WHOLE, *URNS], ids=name_of)
def test_a_likelihood_is_a_product_over_cells_and_rows(mechanism):
    assert isinstance(mechanism, TableMechanism)
    rng = np.random.default_rng(5)
    x = rng.integers(0, 9, (6, *mechanism.shape)).astype(float)
    for steps in [None, STEPS] if mechanism in URNS else [None]:
        output = mechanism.releases(x[0], 1, sampler="exact" if steps else "fast", random_seed=6, steps=steps)[0]
        # The factors of cells and totals, as functions of the counts of each row.
        d, whole = mechanism.shape[-1], np.zeros(6)
        rows = mechanism.row_likelihoods(output, steps=steps)
        for row, counts in zip(rows, np.moveaxis(x.reshape(6, -1, d), 1, 0), strict=True):
            whole += row.cell_loglik(counts, np.arange(d)).sum(axis=-1) + row.total_loglik(counts.sum(axis=-1))
        np.testing.assert_allclose(mechanism.log_likelihood(output, x, steps=steps), whole, rtol=1e-12)
    output = mechanism.releases(x[0], 1, sampler="fast", random_seed=6)[0]
    whole = mechanism.log_likelihood(output, x)
    # The ratio, which leaves out what is the same for both, is the difference.
    ratio = mechanism.log_likelihood_ratio(output[None], x[0], x[1])
    np.testing.assert_allclose(ratio, whole[0] - whole[1], rtol=1e-6, atol=1e-8)
    given = {fact.field: getattr(mechanism, fact.field) for fact in mechanism.facts if fact.is_argument}
    assert type(mechanism).from_dict({**given, "adjacency": "replace-one", "contribution": 1}) == mechanism
    assert all(isinstance(fact, FileField) and hasattr(mechanism, fact.field) for fact in mechanism.facts)
    assert len({fact.name for fact in mechanism.facts}) == len(mechanism.facts)


def test_ratios_of_finite_mechanisms_are_those_of_their_distributions():
    mechanism = TruncatedNoiseMechanism([1.0, 1.0], 5, 1.0)
    x, y = mechanism.worst_neighbours()
    (outcomes, p), (_, q) = mechanism.distribution(x), mechanism.distribution(y)
    found = mechanism.log_likelihood_ratio(outcomes.astype(float), x, y)
    np.testing.assert_allclose(found, np.log(p) - np.log(q), rtol=1e-9)
    # What neither of them can output says nothing.
    assert mechanism.log_likelihood_ratio(np.array([[9.0, -4.0]]), x, y) == 0


def test_weights_keep_the_loss_and_hide_what_is_impossible():
    p, q = np.array([0.7, 0.3 - 1e-25, 1e-25, 0.0]), np.array([0.3, 0.7 - 1e-25, 0.0, 1e-25])
    first, second = integer_weights(p), integer_weights(q)
    losses = [math.log(Fraction(a, sum(first)) / Fraction(b, sum(second))) for a, b in zip(first, second, strict=True)]
    assert max(map(abs, losses)) <= math.log(7 / 3) + 1e-12
    assert first[2] == second[3] > 0
    bits = Bits(3)
    drawn = Counter(drawn_from(p, bits) for _ in range(4000))
    assert abs(drawn[0] - 2800) < 200
    assert set(drawn) == {0, 1}
