"""All tables of a network fitted together: marginals and their derivatives, modes, orders, and joined parents."""

import itertools

import numpy as np
import pytest

from pymc_dirdp.inference.log_linear import LogLinearPosterior, _divided
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.table_fit import fit_tables, fitted
from pymc_dirdp.networks.joint_fit import (
    EliminationError,
    NetworkMarginals,
    fit_jointly,
    shares_given_parents,
    with_co_parents,
)
from pymc_dirdp.progress import QUIET


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


@pytest.mark.parametrize("seed", range(10))
def test_marginals_and_their_derivatives(seed):
    """Of the product of all tables; forwards, backwards and the changes of slopes against finite differences."""
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made, n, h = marginals.run(tables), len(tables), 1e-5
    values = marginals.values(made)
    for found, expected in zip(values, brute_force(families, tables, wanted), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    direction = [rng.normal(size=table.shape) for table in tables]
    of_wanted, change = ([rng.normal(size=value.shape) for value in values] for _ in range(2))

    def there(step):
        return marginals.run([t + step * d for t, d in zip(tables, direction, strict=True)])

    def slopes(step):
        shifted = [a + step * b for a, b in zip(of_wanted, change, strict=True)]
        return marginals.slopes(there(step), shifted)[:n]

    changes, back = marginals.changes(made, direction), marginals.slopes(made, of_wanted)
    forward = marginals.values(changes)
    ahead, behind = (marginals.values(there(step)) for step in (h, -h))
    for found, one, other in zip(forward, ahead, behind, strict=True):
        np.testing.assert_allclose(found, (one - other) / (2 * h), rtol=1e-6, atol=1e-7)
    forwards = sum(np.sum(a * b) for a, b in zip(of_wanted, forward, strict=True))
    assert forwards == pytest.approx(sum(np.sum(a * b) for a, b in zip(back[:n], direction, strict=True)), rel=1e-10)
    of_slopes = marginals.slope_changes(made, changes, back, change)[:n]
    for found, one, other in zip(of_slopes, slopes(h), slopes(-h), strict=True):
        np.testing.assert_allclose(found, (one - other) / (2 * h), rtol=1e-5, atol=1e-6)
    # Many directions at once are each by itself.
    together = marginals.values(marginals.changes(made, [np.stack([d, -2 * d]) for d in direction]))
    both = marginals.slopes(made, [np.stack([w, 3 * w]) for w in of_wanted])[:n]
    for factor, many, one in ((-2, together, forward), (3, both, back[:n])):
        for a, b in zip(many, one, strict=True):
            np.testing.assert_allclose(a, np.stack([b, factor * b]), atol=1e-11)


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
    # And one whose marginals do.
    families = [Family(f"p_{i}", (f"v{i}",), (10,)) for i in range(10)]
    families += [Family(f"p_w{i}", (f"v{i}", f"v{i + 1}", f"w{i}"), (10, 10, 2)) for i in range(9)]
    every = Measurement(tuple(f"v{i}" for i in range(10)), np.zeros((1,) * 10), 1.0)
    with pytest.raises(EliminationError, match="consistency='tables'"):
        fit_jointly(families, [every], 100)


def posterior_of(families, measurements, n):
    return LogLinearPosterior(NetworkMarginals(families, [one.axes for one in measurements]), measurements, n)


def test_noisy_marginals_of_a_chain_have_the_fit_that_private_pgm_gives():
    """Marginals that contradict each other, with noise of different sizes: the network nearest to all of them.

    Of `mbi` 2.0.0: `MirrorDescent().estimate` of these four marginals, 400 records, 5000 iterations, in doubles.
    """
    noisy = {
        "ab": ([[121.3, 57.9, 24.6], [28.2, 93.4, 74.1]], 4.0),
        "bc": ([[104.7, 49.2], [26.9, 121.8], [95.3, 13.1]], 6.0),
        "b": ([148.6, 151.2, 99.7], 3.0),
        "c": ([221.9, 171.4], 5.0),
    }
    of_mbi = {
        "ab": [[121.08851844, 57.66185179, 25.2996298], [27.98851841, 93.16185179, 74.79962976]],
        "bc": [[103.3306246, 45.74641225], [29.00395807, 121.81974551], [92.19173267, 7.90752689]],
    }
    measurements = [Measurement(tuple(axes), np.array(counts), sd**2) for axes, (counts, sd) in noisy.items()]
    families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 3)), Family("p_c", ("b", "c"), (3, 2))]
    exact = posterior_of(families, measurements, 400.0)
    # Hardly shrunk.
    scales = [np.array([0.0, *np.full(len(effects.orders) - 1, 20.0)]) for effects in exact.effects]
    tables = exact.tables(exact.mode(np.zeros(sum(one.groups.size for one in exact.effects)), scales, 1e-4))
    joint = 400 * np.einsum("a,ab,bc->abc", tables["p_a"], tables["p_b"], tables["p_c"])
    for axes, expected in of_mbi.items():
        np.testing.assert_allclose(np.einsum(f"abc->{axes}", joint), expected, atol=0.02)


# A chain, of which the families alone are measured: what is measured of b and c says something of b.
CHAIN = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("b", "c"), (4, 3)),
    Family("p_d", ("c", "b", "d"), (3, 4, 2)),
]
LETTERS = {"p_a": "a", "p_b": "ab", "p_c": "bc", "p_d": "cbd"}


def truth(seed):
    rng = np.random.default_rng(seed)
    return {family.name: rng.dirichlet(np.full(family.shape[-1], 2.0), family.shape[:-1]) for family in CHAIN}


def joint_of_chain(tables):
    return np.einsum("a,ab,bc,cbd->abcd", *(tables[family.name] for family in CHAIN))


def measured_marginals(tables, n, variances, rng):
    """Noisy marginals of n records, by the letters of the axes."""
    p = joint_of_chain(tables)
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape)
    found = []
    for letters, variance in variances.items():
        table = np.einsum(f"abcd->{letters}", counts)
        found.append(Measurement(tuple(letters), table + rng.normal(0, variance**0.5, table.shape), variance))
    return found


def families_measured(tables, n, variance, rng):
    return measured_marginals(tables, n, dict.fromkeys(LETTERS.values(), variance), rng)


def divergence_of_chain(tables, found):
    p = joint_of_chain(tables)
    return float(np.sum(p * np.log(p / joint_of_chain(found))))


def test_a_marginal_of_no_family_tells_something_of_the_tables_between():
    """B given a is hardly measured; what is measured of a and c, and of b and c, tells it all the same."""
    apart, together = [], []
    for seed in range(5):
        tables = truth(seed)
        variances = {"a": 100.0, "b": 100.0, "ab": 1e6, "bc": 10.0, "ac": 10.0, "cbd": 100.0}
        measured = measured_marginals(tables, 5000, variances, np.random.default_rng(seed))
        apart.append(divergence_of_chain(tables, fit_tables(CHAIN, measured, 5000)))
        together.append(divergence_of_chain(tables, fit_jointly(CHAIN, measured, 5000)))
    assert np.mean(together) < 0.7 * np.mean(apart)


@pytest.mark.parametrize("fit", [fit_tables, fit_jointly])
def test_the_more_records_the_smaller_the_divergence(fit):
    found = []
    for n in (10**3, 10**5, 10**7):
        fits = []
        for seed in range(2):
            tables = truth(seed)
            measured = families_measured(tables, n, 400.0, np.random.default_rng(seed))
            fits.append(divergence_of_chain(tables, fit(CHAIN, measured, n)))
        found.append(np.mean(fits))
    assert found[0] > 10 * found[1] > 100 * found[2]
    assert found[2] < 1e-5


@pytest.mark.parametrize(("fit", "close"), [(fit_tables, 1e-4), (fit_jointly, 1e-2)])
def test_the_order_of_parents_families_and_measurements_makes_no_difference(fit, close):
    measured = families_measured(truth(1), 3000, 100.0, np.random.default_rng(0))
    first = fit(CHAIN, measured, 3000)
    turned = [Measurement(one.axes[::-1], one.noisy.transpose(), one.variance) for one in reversed(measured)]
    second = fit([Family("p_d", ("b", "c", "d"), (4, 3, 2)), *CHAIN[:3]], turned, 3000)
    np.testing.assert_allclose(second["p_d"].transpose(1, 0, 2), first["p_d"], rtol=close)
    np.testing.assert_allclose(second["p_b"], first["p_b"], rtol=close)


@pytest.mark.parametrize("fit", [fit_tables, fit_jointly])
@pytest.mark.parametrize(("n", "variance"), [(0, 1.0), (1, 1e-3), (None, 1e10), (10**9, 1e-3), (10**9, 1e10)])
def test_shares_are_shares_for_every_number_of_records_and_noise(fit, n, variance):
    found = fit(CHAIN, families_measured(truth(1), n or 0, variance, np.random.default_rng(0)), n)
    for family in CHAIN:
        assert found[family.name].shape == family.shape
        assert np.all(found[family.name] > 0)
        np.testing.assert_allclose(found[family.name].sum(axis=-1), 1, rtol=1e-12)


def test_the_fit_is_the_mode_given_the_variance_of_the_sample_at_the_fit():
    """The gradient is short with the weights of the fit itself, and long without the variance of the sample."""
    measured = families_measured(truth(1), 2000, 1.0, np.random.default_rng(0))
    found = fit_jointly(CHAIN, measured, 2000)
    ordered = [family.sorted for family in CHAIN]
    _, scales = fitted(ordered, measured, 2000, QUIET)
    posterior = posterior_of(ordered, measured, 2000)
    mode = posterior.coordinates(
        {
            family.name: found[family.name].transpose([family.axes.index(a) for a in family.sorted.axes])
            for family in CHAIN
        }
    )
    of_each = [scales[f.name][e.groups] for f, e in zip(CHAIN, posterior.effects, strict=True)]
    for own in of_each:
        own[..., 0] = 0.0
    of_each = np.concatenate([own.ravel() for own in of_each])
    x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0)
    without = np.linalg.norm(posterior.objective(x, of_each)[1])
    posterior.reweighted(mode)
    assert np.linalg.norm(posterior.objective(x, of_each)[1]) < 0.1
    assert without > 10


@pytest.fixture
def lengths(monkeypatch):
    """The shapes of the tables of each search for a mode, and how long the gradient is where it ends.

    Lengths are looked at, and not numbers of steps: in coordinates of which the prior has the variance 1.
    """
    found, found_by = [], LogLinearPosterior.mode

    def watched(self, start, scales, close):
        mode, of_each = found_by(self, start, scales, close), self._of_each(scales)
        length = np.linalg.norm(self.objective(_divided(mode, of_each), of_each)[1])
        found.append((tuple(effects.shape for effects in self.effects), length))
        return mode

    monkeypatch.setattr(LogLinearPosterior, "mode", watched)
    return found


def test_each_table_and_the_joint_fit_end_where_the_gradient_is_short(lengths):
    measured = families_measured(truth(1), 10**5, 25.0, np.random.default_rng(0))
    fit_tables(CHAIN, measured, 10**5)
    last = dict(lengths)
    assert len(last) == 4
    assert max(last.values()) <= 1e-3
    lengths.clear()
    fit_jointly(CHAIN, measured, 10**5)
    # What comes before is the search of a table by itself, which starts the joint fit.
    together = [length for shapes, length in lengths if len(shapes) == len(CHAIN)]
    assert len(together) == 2
    assert together[-1] <= 1e-3


FAMILIES = [Family("p_a", ("a",), (3,)), Family("p_b", ("a", "b"), (3, 4)), Family("p_c", ("a", "b", "c"), (3, 4, 2))]


def joint(rng):
    return rng.dirichlet(np.full(24, 2.0)).reshape(3, 4, 2)


def conditional(p):
    a, ab = p.sum(axis=(1, 2)), p.sum(axis=2)
    return {"p_a": a, "p_b": ab / a[:, None], "p_c": p / ab[..., None]}


def test_shares_given_other_parents_are_those_of_the_joint_distribution():
    p = joint(np.random.default_rng(9))
    wanted = [Family("p_b", ("b",), (4,)), Family("p_c", ("b", "c"), (4, 2)), Family("p_a", ("c", "a"), (2, 3))]
    found = shares_given_parents(FAMILIES, conditional(p), wanted)
    bc, ca = p.sum(axis=0), p.sum(axis=1).T
    np.testing.assert_allclose(found["p_b"], bc.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found["p_c"], bc / bc.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(found["p_a"], ca / ca.sum(axis=1, keepdims=True), rtol=1e-12)


def family(axes, size=2):
    return Family(f"p_{axes[-1]}", tuple(axes), (size,) * len(axes))


def measured(axes, size=2):
    return Measurement(tuple(axes), np.ones((size,) * len(axes)), 1.0)


def axes_of(families):
    return ["".join(one.axes) for one in families]


def test_parents_of_one_variable_that_were_measured_together_are_joined():
    """Joining c and d for e makes a and c parents of d, and these are joined next."""
    families = [family(axes) for axes in ("a", "b", "c", "ad", "cde")]
    joined = with_co_parents(families, [measured("cde"), measured("acd")], 100)
    assert axes_of(joined) == ["a", "b", "ac", "acd", "cde"]
    assert joined[3].shape == (2, 2, 2)
    # No marginal holds a and b together.
    apart = with_co_parents([family("a"), family("b"), family("abc")], [measured("ac"), measured("bc")], 100)
    assert axes_of(apart) == ["a", "b", "abc"]


def test_joining_makes_no_table_too_large_and_leaves_variables_of_one_value():
    for size, many in ((100, 1), (101, 0)):
        large = with_co_parents(
            [family("a", size), family("b", size), family("abc", size)], [measured("ab", size)], 1e9
        )
        assert len(large[1].parents) == many
    alone = [family("a"), Family("p_b", ("b",), (1,)), Family("p_c", ("a", "b", "c"), (2, 1, 2))]
    assert [one.axes for one in with_co_parents(alone, [measured("ab")], 100)] == [one.axes for one in alone]


def test_joined_families_do_not_depend_on_the_order_of_the_families():
    families = [family(axes) for axes in ("a", "b", "c", "abd", "bcde")]
    orders = [with_co_parents(order, [measured("abcde")], 100) for order in itertools.permutations(families)]
    assert len({frozenset((one.name, frozenset(one.axes)) for one in order) for order in orders}) == 1


def test_parents_stay_apart_where_noise_hides_how_they_depend_on_each_other():
    """The sum over c has twice the variance: with 40 records and 10 in each of four cells, 100 is the most."""
    families = [family("a"), family("b"), family("abc")]
    for variance, many in ((50.0, 1), (50.5, 0)):
        noisy = Measurement(("a", "b", "c"), np.ones((2, 2, 2)), variance)
        assert len(with_co_parents(families, [noisy], 40)[1].parents) == many
