import itertools

import numpy as np
import pytest

from pymc_dirdp.inference.measurements import Family
from pymc_dirdp.inference.network_marginals import EliminationError, NetworkMarginals

SEEDS = range(20)


def network(seed):
    """A random directed graph of up to 6 nodes, its tables, and some sets of variables, in random orders."""
    rng = np.random.default_rng(seed)
    nodes = [f"v{i}" for i in range(rng.integers(2, 7))]
    sizes = dict(zip(nodes, rng.integers(1, 5, len(nodes)).tolist(), strict=True))
    order = rng.permutation(nodes).tolist()
    families = []
    for i, node in enumerate(order):
        parents = rng.permutation(order[:i]).tolist()[: rng.integers(0, min(i, 3) + 1)]
        axes = (*parents, node)
        families.append(Family(f"p_{node}", axes, tuple(sizes[axis] for axis in axes)))
    families = [families[i] for i in rng.permutation(len(families))]
    tables = [rng.dirichlet(np.ones(family.shape[-1]), family.shape[:-1]) for family in families]
    wanted = [family.axes for family in families]
    wanted += [tuple(rng.permutation(nodes)[: rng.integers(1, len(nodes) + 1)].tolist()) for _ in range(6)]
    return families, tables, wanted, rng


def brute_force(families, tables, wanted):
    """Marginals of the product of all tables."""
    letters = {family.variable: chr(ord("a") + i) for i, family in enumerate(families)}
    spelled = [("".join(letters[axis] for axis in axes)) for axes in [family.axes for family in families]]
    return [np.einsum(f"{','.join(spelled)}->{''.join(letters[axis] for axis in axes)}", *tables) for axes in wanted]


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_are_those_of_the_product_of_all_tables(seed):
    families, tables, wanted, _ = network(seed)
    marginals = NetworkMarginals(families, wanted)
    for found, expected in zip(
        marginals.values(marginals.run(tables)), brute_force(families, tables, wanted), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_forwards_are_those_of_finite_differences(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    direction = [rng.normal(size=table.shape) for table in tables]
    h = 1e-5
    ahead, behind = (
        marginals.values(marginals.run([t + s * h * d for t, d in zip(tables, direction, strict=True)]))
        for s in (1, -1)
    )
    forward = marginals.values(marginals.changes(marginals.run(tables), direction))
    for found, a, b in zip(forward, ahead, behind, strict=True):
        np.testing.assert_allclose(found, (a - b) / (2 * h), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_backwards_are_the_transposed_of_those_forwards(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made = marginals.run(tables)
    direction = [rng.normal(size=table.shape) for table in tables]
    of_wanted = [rng.normal(size=value.shape) for value in marginals.values(made)]
    forward = marginals.values(marginals.changes(made, direction))
    forwards = sum(np.sum(a * b) for a, b in zip(of_wanted, forward, strict=True))
    slopes = marginals.slopes(made, of_wanted)[: len(tables)]
    assert forwards == pytest.approx(sum(np.sum(a * b) for a, b in zip(slopes, direction, strict=True)), rel=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_slopes_are_those_of_finite_differences(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made = marginals.run(tables)
    direction = [rng.normal(size=table.shape) for table in tables]
    of_wanted, change = ([rng.normal(size=value.shape) for value in marginals.values(made)] for _ in range(2))
    h = 1e-5

    def slopes(step):
        there = marginals.run([t + step * d for t, d in zip(tables, direction, strict=True)])
        return marginals.slopes(there, [a + step * b for a, b in zip(of_wanted, change, strict=True)])[: len(tables)]

    found = marginals.slope_changes(made, marginals.changes(made, direction), marginals.slopes(made, of_wanted), change)
    for one, ahead, behind in zip(found[: len(tables)], slopes(h), slopes(-h), strict=True):
        np.testing.assert_allclose(one, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_many_directions_at_once_are_each_by_itself(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made = marginals.run(tables)
    directions = [rng.normal(size=(3, *table.shape)) for table in tables]
    together = marginals.values(marginals.changes(made, directions))
    of_wanted = [value * 2 for value in together]
    back = marginals.slopes(made, of_wanted)[: len(tables)]
    for i in range(3):
        alone = marginals.values(marginals.changes(made, [d[i] for d in directions]))
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[i], b, atol=1e-12)
        for a, b in zip(back, marginals.slopes(made, [2 * value for value in alone]), strict=False):
            np.testing.assert_allclose(a[i], b, atol=1e-12)


def grid(width):
    """A grid of variables of 10 values, each with the ones above and to the left as parents, and one child of a row."""
    families = []
    for i, j in itertools.product(range(width), repeat=2):
        axes = tuple(f"v{a}{b}" for a, b in ((i - 1, j), (i, j - 1)) if a >= 0 and b >= 0) + (f"v{i}{j}",)
        families.append(Family(f"p_{i}{j}", axes, (10,) * len(axes)))
    return families


def test_a_network_whose_elimination_explodes_is_refused_before_anything_is_computed():
    families = grid(9)
    with pytest.raises(EliminationError, match=r"needs a product of 10+ cells.*consistency='tables'"):
        NetworkMarginals(families, [family.axes for family in families])


def test_a_chain_of_many_variables_needs_small_tables_only():
    families = [Family("p_0", ("v0",), (10,))]
    families += [Family(f"p_{i}", (f"v{i - 1}", f"v{i}"), (10, 10)) for i in range(1, 60)]
    tables = [np.random.default_rng(i).dirichlet(np.ones(10), family.shape[:-1]) for i, family in enumerate(families)]
    marginals = NetworkMarginals(families, [("v59",), ("v3", "v58")])
    last, far = marginals.values(marginals.run(tables))
    np.testing.assert_allclose(last, np.linalg.multi_dot([tables[0][None], *tables[1:]])[0], atol=1e-12)
    first = np.linalg.multi_dot([tables[0][None], *tables[1:4]])[0]
    np.testing.assert_allclose(far, first[:, None] * np.linalg.multi_dot(tables[4:59]), atol=1e-12)
