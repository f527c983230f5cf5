"""P3's queries: values as exact fractions, and how far one person moves them at most."""

import math
from fractions import Fraction

import numpy as np
import pytest
from printed_p3 import p3_query

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism

DOMAIN = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4)


def people_of(rng, n):
    people = 0.05 + 0.85 * rng.dirichlet([1.0, 1.0, 1.0], n)
    return people / people.sum(axis=1, keepdims=True) * (1 - 1e-12)


def test_the_average_and_a_weighted_average_are_rounded_once():
    rng = np.random.default_rng(1)
    people, weights = people_of(rng, 100), rng.integers(1, 9, 100) / 4
    for given, shares in ((None, [Fraction(1, 100)] * 100), (weights, [Fraction(w) for w in weights.tolist()])):
        value, domain = p3_query(people, domain=DOMAIN, protected=[0, 1], weights=given)
        total = sum(shares)
        for found, column in zip(value.tolist(), people.T.tolist(), strict=True):
            exact = sum(share * Fraction(x) for share, x in zip(shares, column, strict=True)) / total
            assert found == float(exact)
        assert Fraction(domain.weight) > max(shares) / total
        assert domain.weight == pytest.approx(float(max(shares) / total), rel=1e-9)
        assert (domain.eta, domain.etabar, domain.b) == (DOMAIN.eta, DOMAIN.etabar, DOMAIN.b)


def test_no_neighbour_is_further_away_than_the_domain_says():
    """Definition 3: one person moves `b / 2` between two protected entries, exactly. Both values are rounded."""
    rng = np.random.default_rng(2)
    wide = SimplexDomain(2, eta=0.05, etabar=0.05, b=0.5)
    beyond = 0
    for n in (2, 3, 7, 100) * 50:
        people = people_of(rng, n)
        people[0] = [0.0625, 0.5, 0.4375]
        neighbour = people.copy()
        neighbour[0] = [0.3125, 0.25, 0.4375]
        (value, domain), (other, _) = (p3_query(x, domain=wide, protected=[0, 1]) for x in (people, neighbour))
        for one, two in zip(value.tolist()[:2], other.tolist()[:2], strict=True):
            step = abs(Fraction(one) - Fraction(two))
            assert step <= Fraction(domain.largest_step)
            beyond += step > Fraction(1, n) / 4
        assert abs(value[0] - other[0]) > 0.999 * domain.largest_step
    # Without the rounding in the weight, some would be too far away.
    assert beyond > 10


def test_one_person_and_everybody_at_the_floor():
    people = [[0.05, 0.8, 0.15]]
    value, domain = p3_query(people, domain=DOMAIN, protected=[0, 1])
    assert value.tolist() == people[0]
    assert domain.weight == 1
    heavy = p3_query([[0.1, 0.2, 0.7], people[0]], domain=DOMAIN, protected=[0, 1], weights=[0, 5])
    assert heavy[0].tolist() == people[0]
    assert heavy[1].weight == 1
    # Sums of floors that are rounded would fall below the floor.
    for n in range(2, 60):
        value, domain = p3_query(people * n, domain=DOMAIN, protected=[0, 1])
        assert value.tolist() == people[0]
        SimplexMechanism(5, domain).sample(value, protected=[0, 1], random_seed=0)


def test_lemma_6_does_not_follow_where_there_are_floors():
    """A negative weight that keeps every pair of vectors of the domain in the simplex."""
    corners = np.array([[0.05, 0.05, 0.9], [0.05, 0.9, 0.05], [0.9, 0.05, 0.05]])
    combined = 1.01 * corners[:, None, :] - 0.01 * corners[None, :, :]
    assert combined.min() > 0
    np.testing.assert_allclose(combined.sum(axis=-1), 1)
    domain = SimplexDomain(2, eta=0.05, etabar=0.049, b=0.4)
    with pytest.raises(ArgumentError, match="at least 0"):
        p3_query(corners[:2], domain=domain, protected=[0, 1], weights=[1.01, -0.01])


def test_arguments():
    good = [[0.2, 0.3, 0.5], [0.4, 0.1, 0.5]]
    for wrong in (
        [[0.04, 0.46, 0.5]],
        [[0.5, 0.46, 0.04]],
        [[0.2, 0.3, 0.6]],
        [[0.2, math.nan, 0.5]],
        [[0.0, 0.5, 0.5]],
    ):
        with pytest.raises(DataError) as caught:
            p3_query([*good, *wrong], domain=DOMAIN, protected=[0, 1])
        assert "0.46" not in str(caught.value)
    for wrong in (good[0], np.zeros((0, 3)), [[0.5, 0.5]], "people"):
        with pytest.raises(ArgumentError, match="vectors"):
            p3_query(wrong, domain=DOMAIN, protected=[0, 1])
    for wrong in ([1.0], [0, 0], [1, math.inf], "weights"):
        with pytest.raises(ArgumentError, match="weights"):
            p3_query(good, domain=DOMAIN, protected=[0, 1], weights=wrong)
    with pytest.raises(ArgumentError, match="protected"):
        p3_query(good, domain=DOMAIN, protected=[0])
    with pytest.raises(ArgumentError, match="vectors"):
        p3_query(good, domain=DOMAIN, protected=[0, 3])
