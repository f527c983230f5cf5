"""Every data set of small models, every replacement and removal of a person, against the claim for a person."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import betaln, gammaln

from pymc_dirdp import ApproxDP, calibrate
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.people import Contribution
from tests.oracles import beta_hockey_stick, dirichlet_renyi, log_logit_density, tables_of

# What one person may hold, as tables of counts. The names are those of the models.


def survey(shape, per_row):
    """So many answers in each row."""
    rows = [
        np.bincount(c, minlength=shape[1]) for c in itertools.combinations_with_replacement(range(shape[1]), per_row)
    ]
    return [np.array(table) for table in itertools.product(rows, repeat=shape[0])]


def anywhere(shape, records):
    return list(tables_of(shape, records))


def at_most(shape, records):
    return [table for m in range(records + 1) for table in anywhere(shape, m)]


def walks(shape, steps):
    """A Markov chain of so many steps: the states are the rows and the columns."""
    found = []
    for path in itertools.product(range(shape[0]), repeat=steps + 1):
        table = np.zeros(shape)
        for here, there in itertools.pairwise(path):
            table[here, there] += 1
        found.append(table)
    return found


def documents(shape, words):
    """All words in the row of the document's class."""
    found = []
    for row in range(shape[0]):
        for table in anywhere((shape[1],), words):
            found.append(np.zeros(shape))
            found[-1][row] = table
    return found


def own_row(shape, records):
    """Only the first person's row is shown; the others have rows of their own, which no one else feeds."""
    return [np.vstack([table, np.zeros((shape[0] - 1, shape[1]))]) for table in anywhere((shape[1],), records)]


# shape of the table, tables of one person, what is declared, and whether the claim is attained by these small data.
MODELS = {
    "i: one answer to each of two items": ((2, 2), survey((2, 2), 1), Contribution(1, ("each",)), True),
    "i with three categories": ((2, 3), survey((2, 3), 1), Contribution(1, ("each",)), True),
    "ii: two answers in a row": ((2,), anywhere((2,), 2), Contribution(2), True),
    "ii: three answers of three categories": ((3,), anywhere((3,), 3), Contribution(3), True),
    "iii: two answers to each of two items": ((2, 2), survey((2, 2), 2), Contribution(2, ("each",)), True),
    "iii': a row for each person": ((2, 3), own_row((2, 3), 2), Contribution(2, ("own",)), False),
    "iv: a chain of two steps": ((2, 2), walks((2, 2), 2), Contribution(2), False),
    "iv: a chain of three steps": ((2, 2), walks((2, 2), 3), Contribution(3), False),
    "v: one or two answers": ((3,), at_most((3,), 2)[1:], Contribution(2), True),
    "vi: the words of a document": ((2, 2), documents((2, 2), 2), Contribution(2), False),
    "vi with three categories": ((2, 3), documents((2, 3), 2), Contribution(2), False),
    "ix: at most two answers": ((2, 2), at_most((2, 2), 2), Contribution(2), False),
}
ALPHAS = {2: [[1.0, 1.0], [0.5, 3.0], [0.3, 0.3], [0.1, 2.0]], 3: [[1.0, 1.0, 2.0], [0.5, 3.0, 2.0], [0.1, 0.1, 0.1]]}
# Room for the rounding of the oracle's own log-gammas alone.
ORACLE = 1 + 1e-9


def prior(shape, row):
    return np.broadcast_to(np.array(row), shape).astype(float)


def worst_renyi(orders, tables, alpha, r, adjacency, most_others):
    """Over the data of up to so many others, and no others but a group in the last column."""
    fill_row = np.zeros(alpha.shape)
    fill_row[..., -1] = 1e5
    groups = itertools.chain.from_iterable(
        itertools.combinations_with_replacement(tables, n) for n in range(1, most_others + 1)
    )
    bases = {
        base.tobytes(): base for base in (np.zeros(alpha.shape), fill_row, *(np.sum(g, axis=0) + 0.0 for g in groups))
    }
    both = [
        (r * (base + x) + alpha, r * (base + y) + alpha)
        for base in bases.values()
        for x, y in pairs_of(tables, adjacency)
    ]
    return np.array([max(dirichlet_renyi(order, *pair) for pair in both) for order in orders])


def pairs_of(tables, adjacency):
    if adjacency == "replace-one":
        return list(itertools.permutations(tables, 2))
    nothing = np.zeros(tables[0].shape)
    return [pair for table in tables for pair in ((table, nothing), (nothing, table))]


def renyi_holds(name, adjacency, most_others, rs):
    shape, tables, contribution, attained = MODELS[name]
    closest = 0.0
    orders = (1.0, 1.5, 2.0, 4.0)
    for row, r in itertools.product(ALPHAS[shape[-1]], rs):
        alpha = prior(shape, row)
        mechanism = DirichletMechanism(alpha, r, contribution=contribution, adjacency=adjacency)
        claims = mechanism.renyi(orders)
        worst = worst_renyi(orders, tables, alpha, r, adjacency, most_others)
        finite = np.isfinite(claims)
        assert np.all(worst[finite] <= claims[finite] * ORACLE + 1e-9)
        closest = max(closest, *(worst[finite] / claims[finite]))
        if attained and adjacency == "replace-one" and len(set(row)) == 1 and min(row) >= 0.5:
            assert np.all(worst[finite] > 0.999 * claims[finite])
    assert closest > 0.6
    if attained and adjacency == "replace-one":
        assert closest > 0.999


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in MODELS if "three steps" not in name])
def test_no_replacement_exceeds_the_divergence(name):
    renyi_holds(name, "replace-one", 0 if "ix" in name else 1, [0.4])


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in MODELS if name[:2] in ("i:", "ii", "vi", "ix")])
def test_no_removal_exceeds_the_divergence(name):
    renyi_holds(name, "add-remove", 1, [0.4])


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", MODELS)
def test_no_neighbour_exceeds_the_divergence_with_more_people(name, adjacency):
    renyi_holds(name, adjacency, 2, [0.2, 1.0, 3.0])


def random_case(rng):
    name = str(rng.choice(list(MODELS)))
    shape = MODELS[name][0]
    return (
        name,
        10 ** rng.uniform(math.log10(0.02), math.log10(5), shape),
        10 ** rng.uniform(math.log10(0.02), math.log10(3)),
    )


@pytest.mark.parametrize("seed", range(24))
def test_random_priors(seed):
    rng = np.random.default_rng(seed)
    name, alpha, r = random_case(rng)
    _, tables, contribution, _ = MODELS[name]
    tables = tables if len(tables) < 20 else tables[:: len(tables) // 12]
    order = 1 + 10 ** rng.uniform(-1.5, 0.7)
    for adjacency in ("replace-one", "add-remove"):
        mechanism = DirichletMechanism(alpha, r, contribution=contribution, adjacency=adjacency)
        worst = worst_renyi((order,), tables, alpha, r, adjacency, 0)[0]
        assert worst <= mechanism.renyi(order) * ORACLE + 1e-9


# The hockey stick. A Dirichlet distribution is a product of Beta distributions of the shares of what is left, so that a
# table with two such shares (two rows of two cells, or one row of three) is a double integral.


def shares(u):
    """The Beta parameters of the shares of every row."""
    return [(row[i], row[i + 1 :].sum()) for row in np.atleast_2d(u) for i in range(np.atleast_2d(u).shape[1] - 1)]


def beta_masses(shares, panels):
    """Points of the logit of each share, and the masses of a Beta distribution there."""
    x = np.linspace(-7, 7, panels)
    logit = 2 * np.sinh(x)
    weights = 2 * np.cosh(x) * (x[1] - x[0])
    for a, b in shares:
        log_density = a * logit - (a + b) * np.logaddexp(0, logit) - (gammaln(a) + gammaln(b) - gammaln(a + b))
        yield np.exp(log_density) * weights


def hockey_stick(epsilon, u, v, panels=301):
    one, other = (list(beta_masses(shares(x), panels)) for x in (u, v))
    p, q = (masses[0] if len(masses) == 1 else np.multiply.outer(*masses) for masses in (one, other))
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def deltas_hold(name, adjacency, others, alphas, rs, epsilons):
    shape, tables, contribution, attained = MODELS[name]
    for row, r in itertools.product(alphas, rs):
        alpha = prior(shape, row)
        mechanism = DirichletMechanism(alpha, r, contribution=contribution, adjacency=adjacency)
        for epsilon in epsilons:
            worst = 0.0
            for base in [np.zeros(shape), *(tables if others else [])]:
                for one, other in pairs_of(tables, adjacency):
                    distributions = r * (base + one) + alpha, r * (base + other) + alpha
                    worst = max(worst, hockey_stick(epsilon, *distributions))
            # The kink of the integrand is met with this accuracy; see the test of the oracle.
            assert worst <= mechanism.delta(epsilon) + 4e-4
            # With uneven parameters the rows of the worst data go different ways, and the claim allows every way.
            if attained and adjacency == "replace-one" and len(set(row)) == 1:
                assert worst > mechanism.delta(epsilon) * 0.99 - 4e-4


SMALL = ["i: one answer to each of two items", "ii: two answers in a row", "iv: a chain of two steps"]


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", [*SMALL, "vi: the words of a document"])
def test_no_neighbour_exceeds_the_hockey_stick(name, adjacency):
    deltas_hold(name, adjacency, False, [[1.0, 1.0], [0.3, 0.6]], [0.3], [0.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name][0] in ((2,), (3,), (2, 2))])
def test_no_neighbour_exceeds_the_hockey_stick_with_more_people(name, adjacency):
    alphas = ALPHAS[MODELS[name][0][-1]]
    deltas_hold(name, adjacency, True, alphas[:2] + alphas[-1:], [0.2, 1.0], [0.0, 0.25, 1.0])


def test_the_oracle_of_the_hockey_stick():
    """A product of two rows against the composed curve, one row of two cells against the exact one."""
    alpha = np.array([0.7, 1.3])
    for epsilon in (0.0, 0.5, 1.5):
        exact = DirichletMechanism(alpha, 0.6).delta(epsilon)
        one = hockey_stick(epsilon, alpha + [0, 0.6], alpha + [0.6, 0])
        other = hockey_stick(epsilon, alpha + [0.6, 0], alpha + [0, 0.6])
        assert max(one, other) == pytest.approx(exact, abs=3e-4)
    coarse, fine = (
        hockey_stick(0.5, *distributions, panels=panels) for panels in (301, 1201) for distributions in [two_rows()]
    )
    assert coarse == pytest.approx(fine, abs=4e-4)


def two_rows():
    alpha = np.array([[0.5, 3.0], [0.5, 3.0]])
    return alpha + [[0.0, 0.6]] * 2, alpha + [[0.6, 0.0]] * 2


@pytest.mark.parametrize("alpha", [[1.0, 1.0, 2.0], [0.5, 3.0, 2.0]])
def test_a_wrong_claim_is_rejected(alpha):
    """Two records that can meet in a cell are no composition of two records: the same data refute that claim.

    The documentation prints the figures of the first prior.
    """
    shape = (3,)
    tables = anywhere(shape, 2)
    single = DirichletMechanism(alpha, 0.2)
    claim = Composition(((single, 2),))
    worst = worst_renyi((1.0, 2.0, 4.0), tables, prior(shape, alpha), 0.2, "replace-one", 0)
    assert worst[0] > 1.3 * claim.renyi(1.0)
    assert worst[1] > 1.5 * claim.renyi(2.0)
    stick = max(
        hockey_stick(1.0, 0.2 * one + alpha, 0.2 * other + alpha) for one, other in pairs_of(tables, "replace-one")
    )
    assert stick > 2 * claim.delta(1.0) + 4e-4
    pair = DirichletMechanism(alpha, 0.2, contribution=2)
    if alpha[0] == 1:
        assert pair.renyi([1, 2]) / claim.renyi([1, 2]) == pytest.approx([1.79, 1.90], abs=0.005)
        assert claim.renyi(4) < pair.renyi(4) == math.inf
        assert pair.delta(1) / claim.delta(1) == pytest.approx(4.14, abs=0.03)


# One row of two cells with a public number of records (Theory, Theorem 14): all records of the others, both orders.


def row_neighbours(mechanism):
    """The parameters of all neighbours: some records of one person are in one cell, or in the other."""
    n_records, least = mechanism.n_records, math.ceil(mechanism.min_count)
    for moving in range(1, min(mechanism.contribution.records, n_records) + 1):
        for n in range(least, n_records - moving - least + 1):
            others = np.array([n, n_records - moving - n])
            distributions = [
                tuple((mechanism.r * (others + change) + mechanism.alpha.ravel()).tolist())
                for change in ([moving, 0], [0, moving])
            ]
            yield from (distributions, distributions[::-1])


ROWS = [
    DirichletMechanism([1.0, 1.0], 0.3, n_records=30),
    DirichletMechanism([5.0, 0.4], 0.15, n_records=25),
    DirichletMechanism([3.0, 2.0], 10.0, n_records=35),
    DirichletMechanism([0.7, 0.7], 1.0, n_records=1),
    DirichletMechanism([0.7, 1.7], 1.0, n_records=2),
    DirichletMechanism([[0.3, 1.0]], 0.2, n_records=20, contribution=3),
    DirichletMechanism([2.0, 1.0], 0.4, n_records=2, contribution=5),
    DirichletMechanism([0.5, 0.6], 0.5, n_records=9, min_count=2.5, contribution=4),
    # Of these fewer records can move than a person has.
    DirichletMechanism([1.0, 1.5], 0.8, n_records=5, min_count=2, contribution=3),
    DirichletMechanism([0.3, 4.0], 0.5, n_records=8, min_count=2, contribution=7),
]


@pytest.mark.parametrize("mechanism", ROWS, ids=lambda m: f"{m.summary}, N {m.n_records}")
def test_every_pair_of_neighbours_in_a_row_of_public_size(mechanism):
    neighbours = list(row_neighbours(mechanism))
    for epsilon in (0.0, 0.3, 3.0):
        worst = max(beta_hockey_stick(epsilon, *distributions) for distributions in neighbours)
        # The oracle is right to 1e-9, and the bound is attained.
        assert mechanism.delta(epsilon) == pytest.approx(worst, rel=2e-9, abs=1e-15)
    for order in (1.001, 2.0, 8.0):
        worst = max(dirichlet_renyi(order, *map(np.array, distributions)) for distributions in neighbours)
        assert mechanism.renyi(order) == pytest.approx(worst, rel=1e-7)


@pytest.mark.parametrize(("n_records", "min_count"), [(4, 2), (3, 2), (6, 2.5), (0, 0)])
def test_a_row_of_public_size_without_a_record_that_may_move(n_records, min_count):
    mechanism = DirichletMechanism([0.5, 0.6], 0.5, n_records=n_records, min_count=min_count, contribution=3)
    assert not list(row_neighbours(mechanism))
    assert mechanism.epsilon(1e-6) == mechanism.renyi(2.0) == 0
    x, y = mechanism.worst_neighbours()
    assert np.array_equal(x, y)
    # There is nothing to calibrate by, so the number is not used.
    guarantee = ApproxDP(epsilon=1.0, delta=1e-6)
    calibrated = calibrate(
        guarantee,
        prior=[0.5, 0.6],
        n_records=n_records,
        min_count=min_count,
        mechanism=Dirichlet(strategy="temper"),
        public=["n_records"],
    )
    assert calibrated.n_records is None
    assert calibrated.satisfies(guarantee)


def test_one_record_more_in_the_full_cell_would_be_false():
    """The oracle sees a bound that is too small by one record out of 30."""
    mechanism = ROWS[0]
    false = DirichletMechanism([1.0, 1.0], 0.3, n_records=31)
    worst = max(beta_hockey_stick(0.3, *distributions) for distributions in row_neighbours(mechanism))
    assert false.delta(0.3) < worst * (1 - 1e-5)


@pytest.mark.thorough
def test_two_draws_from_a_row_of_public_size():
    """Neighbours that are less far apart at every epsilon >= 0 are further apart below 0, and draws add up both."""
    mechanism = DirichletMechanism([0.5, 4.0], 0.8, n_records=5)
    claim = Composition(((mechanism, 2),))

    for epsilon in (0.0, 1.0):
        worst = 0.0
        for first, second in row_neighbours(mechanism):
            (a, b), (c, d) = first, second
            u = np.linspace(-60, 25, 256)
            losses = (a - c) * u - betaln(a, b) + betaln(c, d)
            inner = [beta_hockey_stick(epsilon - loss, first, second) for loss in losses]
            worst = max(worst, float(np.sum(np.exp(log_logit_density(u, a, b)) * inner) * (u[1] - u[0])))
        # The grid adds a little.
        assert worst * (1 - 1e-6) <= claim.delta(epsilon) <= worst * 1.15


@pytest.mark.parametrize("seed", range(2))
def test_the_hockey_stick_grows_as_the_smaller_parameter_falls(seed):
    """Theorem 14 at random: real parameters with one sum, and the direction that loses more."""
    rng = np.random.default_rng(seed)
    for _ in range(40):
        total, r, epsilon = 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(-1, 1), rng.choice([0, 3]) * rng.random()
        small = np.sort(rng.uniform(0.05, 0.5, 6)) * total
        deltas = [beta_hockey_stick(epsilon, (total - b + r, b), (total - b, b + r)) for b in small.tolist()]
        back = [beta_hockey_stick(epsilon, (total - b, b + r), (total - b + r, b)) for b in small.tolist()]
        assert np.all(np.diff(deltas) <= 1e-9 * deltas[0])
        assert np.all(np.array(back) <= np.array(deltas) * (1 + 1e-9) + 1e-15)
