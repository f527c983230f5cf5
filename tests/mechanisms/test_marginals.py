"""Noisy marginals of one table: brute force over all moves, mutants of the sensitivity, audits, and files."""

import itertools
import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism, ZeroSumMarginalsMechanism
from pymc_dirdp.privacy.people import Contribution
from tests.mechanisms.test_contract import both, delta_of, noise_losses

SHAPE, MARGINALS = (2, 3), ((0,), (1,), (0, 1))
EPSILONS = (0.0, 0.4, 1.1)


def noises(mechanism):
    return [one.noise for one in mechanism.noisy_marginals]


def flat(mechanism, counts):
    return [marginal.ravel() for marginal in mechanism.marginals_of(counts)]


def exact_delta(parts, changes, epsilon):
    """What is left out weighs less than 1e-15."""
    losses = [noise_losses(part, change, least=1e-19) for part, change in zip(parts, changes, strict=True)]
    return delta_of(reduce(both, losses), epsilon)


def marginals(sigmas, noise="gaussian", **options):
    return MarginalsMechanism(np.ones(SHAPE), MARGINALS, sigmas, noise, **options)


CASES = {
    "gaussian": marginals((1.7, 1.9, 2.1)),
    "small noise": marginals((0.5, 0.8, 0.7)),
    "gaussian add-remove": marginals((1.2, 0.9, 1.6), adjacency="add-remove"),
    "geometric add-remove": marginals((2.0, 3.0, 4.0), "geometric", adjacency="add-remove"),
    "geometric": marginals((3.0, 3.0, 5.0), "geometric"),
    "zero-sum": ZeroSumMarginalsMechanism(np.ones((2, 2)), MARGINALS, (0.8, 1.1, 0.9)),
}
# The rows, the shape, the marginals, and the records in a block.
TIED = {
    "two records anywhere": (("any",), (2, 2), ((0,), (0, 1)), 2),
    "two records of each item": (("each",), (2, 2), ((1,), (0, 1)), 2),
    "items and a parent": (("each", "any"), (2, 2, 2), ((2,), (0, 2), (1, 2), (0, 1, 2)), 1),
    "items in a row of one's own": (("own", "each"), (2, 2, 2), ((2,), (1, 2), (0, 1, 2)), 1),
    "how many records of each item": (("each",), (2, 2), ((0,), (0, 1)), 1),
    "how many of each item and group": (("own", "each"), (2, 2, 2), ((0,), (0, 1), (1, 2)), 1),
}
for name, (kinds, shape, some, records) in TIED.items():
    for noise, adjacency in (("gaussian", "replace-one"), ("geometric", "replace-one"), ("gaussian", "add-remove")):
        # Losses of marginals with the same noise are on one lattice, so that they can be listed.
        unit = {"adjacency": adjacency, "contribution": Contribution(records, kinds)}
        CASES[f"{name}, {noise}, {adjacency}"] = MarginalsMechanism(
            np.ones(shape), some, [2.0] * len(some), noise, **unit
        )


def people(shape, kinds, records):
    """For each row of a person's own: all tables of one person with exactly so many records in each block."""
    indices = [range(n) for n in shape[:-1]]
    for own in itertools.product(*(i if kind == "own" else [None] for i, kind in zip(indices, kinds, strict=True))):
        along = [
            i if kind == "each" else [place if kind == "own" else slice(None)]
            for i, kind, place in zip(indices, kinds, own, strict=True)
        ]
        person = [np.zeros(shape, dtype=int)]
        for block in itertools.product(*along):
            cells = np.arange(math.prod(shape)).reshape(shape)[block].ravel()
            chosen = list(itertools.combinations_with_replacement(cells, records))
            added = [np.bincount(one, minlength=math.prod(shape)).reshape(shape) for one in chosen]
            person = [one + more for one in person for more in added]
        yield person


@pytest.mark.parametrize("name", CASES)
def test_no_person_loses_more_than_the_curve(name):
    """Over all changes of one person, whose records lie in blocks."""
    mechanism = CASES[name]
    contributed, changes = mechanism.contributed, []
    kinds = contributed.axes or ("any",) * (len(mechanism.shape) - 1)
    for person in people(mechanism.shape, kinds, contributed.records):
        others = person if mechanism.adjacency == "replace-one" else [np.zeros(mechanism.shape, dtype=int)]
        changes += [flat(mechanism, a - b) for a in person for b in others]
    distinct = {tuple(tuple(sorted(one.tolist())) for one in change): change for change in changes}.values()
    # Of several records in one block the curve is a bound, and for one record it is exact.
    adds = [(*contributed.in_marginal(mechanism.shape, z.axes), z.size) for z in mechanism.noisy_marginals]
    exact = all(records == 1 and (blocks == 1 or blocks < cells) for records, blocks, cells in adds)
    x, y = mechanism.worst_neighbours()
    for epsilon in EPSILONS:
        bound = mechanism.delta(epsilon)
        reached = max(exact_delta(noises(mechanism), change, epsilon) for change in distinct)
        assert reached <= bound + 1e-15  # the oracle's rounding of losses
        # A composition is computed on a grid that errs towards more loss.
        assert reached >= (0.97 if exact else 0.5) * bound
        assert exact_delta(noises(mechanism), flat(mechanism, x - y), epsilon) == pytest.approx(reached)


def test_a_marginal_that_no_neighbour_changes_costs_nothing():
    """How many answers each item or group has is public under replace-one, and is data under add-remove."""

    def half_rho(adjacency, marginals=((0,), (0, 1)), kind="each"):
        survey = Contribution(1, (kind,))
        sigmas = (4.0,) * len(marginals)
        return MarginalsMechanism(np.ones((2, 3)), marginals, sigmas, adjacency=adjacency, contribution=survey).renyi(1)

    assert half_rho("replace-one") == half_rho("replace-one", ((0, 1),)) == pytest.approx(0.125, rel=1e-6)
    own = half_rho("replace-one", kind="own")
    assert own == half_rho("replace-one", ((0, 1),), "own") == pytest.approx(0.0625, rel=1e-6)
    for kind in ("each", "own"):
        assert half_rho("replace-one", ((0,),), kind) == 0
        assert half_rho("add-remove", kind=kind) > half_rho("add-remove", ((0, 1),), kind)
    # The precisions of all others add up.
    mechanism = CASES["gaussian"]
    each = [2 / (2 * float(part.variance)) for part in noises(mechanism)]
    assert mechanism.rho(math.inf) == pytest.approx(sum(each), rel=1e-14)
    assert mechanism.renyi(4) == pytest.approx(4 * sum(each), rel=1e-14)
    assert CASES["zero-sum"].pure_epsilon == pytest.approx(sum(2 / part.scale for part in noises(CASES["zero-sum"])))


@pytest.mark.parametrize("sampler", ["exact", "fast"])
@pytest.mark.parametrize("name", ["gaussian", "geometric", "zero-sum"])
def test_each_marginal_has_noise_of_its_own(name, sampler):
    mechanism, draws = CASES[name], 1500
    counts = np.arange(math.prod(mechanism.shape)).reshape(mechanism.shape)
    outputs = mechanism.releases(counts, draws, sampler=sampler, random_seed=5)
    noise = outputs - np.concatenate(flat(mechanism, counts.astype(float)))
    assert mechanism.is_on_grid(outputs, None)
    assert np.allclose(noise.mean(axis=0), 0, atol=6 * max(mechanism.noise_sds) / math.sqrt(draws))
    # The fourth moment of a geometric distribution is 6 times its squared variance; 10 is above that of all of them.
    for seen, sd in zip(mechanism._split(noise), mechanism.noise_sds, strict=True):
        assert np.allclose(seen.var(axis=0).mean(), sd**2, rtol=6 * math.sqrt(10 / draws / seen.shape[1]))
    apart = np.corrcoef(noise[:, : mechanism.shape[0]].T, noise[:, -1])[-1, :-1]
    assert np.all(np.abs(apart) < 6 / math.sqrt(draws))


def test_one_release_has_the_shapes_of_its_marginals_and_one_seed():
    mechanism, counts = CASES["gaussian"], [[3, 1, 0], [2, 2, 9]]
    found = mechanism.release(counts, random_seed=3)
    shapes = {"noisy_counts_0": (2,), "noisy_counts_1": (3,), "noisy_counts_0_1": (2, 3)}
    assert {name: noisy.shape for name, noisy in found.items()} == shapes
    again = mechanism.draw(counts, 1, sampler="exact", random_seed=3).values
    np.testing.assert_array_equal(again, [np.concatenate([noisy.ravel() for noisy in found.values()])])
    assert any(not np.array_equal(found[name], noisy) for name, noisy in mechanism.release(counts).items())
    # Two marginals of one shape, and a seed: their noise differs nevertheless.
    square = MarginalsMechanism(np.ones((9, 9)), ((0,), (1,)), (5.0, 5.0))
    for seed in (None, 3):
        assert not np.array_equal(*square.release(np.ones((9, 9)), random_seed=seed).values())
    totals = [noisy.sum() for noisy in CASES["zero-sum"].release([[3, 1], [2, 9]]).values()]
    assert totals == [15, 15, 15]


def test_the_likelihood_is_the_product_over_marginals():
    mechanism, counts = CASES["gaussian"], np.array([[3.0, 1, 0], [2, 2, 9]])
    output = mechanism.releases(counts, 7, random_seed=2)
    parts = zip((1.7, 1.9, 2.1), flat(mechanism, counts), np.split(output, [2, 5], axis=1), strict=True)
    by_hand = sum(DiscreteGaussian(sigma).log_pmf(seen - marginal).sum(axis=1) for sigma, marginal, seen in parts)
    np.testing.assert_allclose(mechanism.log_likelihood(output, counts), by_hand, rtol=1e-12)
    other = counts[::-1]
    ratio = mechanism.log_likelihood_ratio(output, counts, other)
    difference = by_hand - mechanism.log_likelihood(output, other)
    np.testing.assert_allclose(ratio, difference, rtol=1e-9, atol=1e-9)
    x, y = mechanism.worst_neighbours()
    expected = exact_delta(noises(mechanism), flat(mechanism, x - y), 0.4)
    assert mechanism.output_distributions(x, y).delta(0.4) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"marginals": ()}, "at least one"),
        ({"marginals": ((0,), (0,)), "parameters": (1.0, 1.0)}, "twice"),
        ({"marginals": ((1, 0),), "parameters": (1.0,)}, "rising order"),
        ({"marginals": ((0, 2),), "parameters": (1.0,)}, "below 2"),
        ({"marginals": ((),), "parameters": (1.0,)}, "two cells"),
        ({"parameters": (1.0,)}, "each of 3 marginals"),
        *(({"parameters": (1.0, 1.0, wrong)}, "sigma") for wrong in (math.nan, 0.0)),
        ({"noise": "laplace"}, "laplace"),
        # Found when the class of a marginal, which refused it, went: each marginal would show the private number.
        ({"zero_sum": True, "adjacency": "add-remove"}, r"private.*Use MarginalsMechanism"),
        ({"zero_sum": True, "noise": "gaussian"}, "gaussian"),
        ({"zero_sum": True, "contribution": Contribution(1, ("each",))}, "independent in each cell"),
    ],
)
def test_what_is_no_mechanism_is_refused(facts, message):
    kind = ZeroSumMarginalsMechanism if facts.get("zero_sum") else MarginalsMechanism
    given = {"prior": np.ones(SHAPE), "marginals": MARGINALS, "parameters": (1.0, 2.0, 3.0)} | facts
    given.pop("zero_sum", None)
    with pytest.raises(ArgumentError, match=message):
        kind(**given)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("marginals", ([["0"]], [0], [[True]], [[0.0]], "0", {"0": 1}, None)),
        ("noise_parameters", (["1"], [1], [True], [None], 1.0, "1", None)),
    ],
    ids=["marginals", "parameters"],
)
def test_lists_of_a_text_hold_numbers_of_the_annotated_types(name, wrong):
    given = {"noise": "gaussian", "marginals": [[0]], "noise_parameters": [1.0]}
    table = {"prior": np.ones(SHAPE), "adjacency": "replace-one", "contribution": Contribution.of(1)}
    assert MarginalsMechanism.of_table(given, **table).marginals == ((0,),)
    for value in wrong:
        with pytest.raises(ArgumentError, match="of the wrong type"):
            MarginalsMechanism.of_table(given | {name: value}, **table)


def test_a_stronger_one_and_what_has_no_rows():
    one = CASES["gaussian"]
    assert one == replace(one) != replace(one, parameters=(1.7, 1.9, 2.7))
    assert hash(one) == hash(replace(one))
    _, stronger = one.stronger(2.0)
    assert stronger.rho(8) == pytest.approx(4 * one.rho(8))
    with pytest.raises(ArgumentError, match=r"dirdp.estimate\(release\)"):
        one.row_likelihoods(np.zeros(11))
