"""All tables of a network fitted together: marginals and their derivatives, modes, orders, and joined parents."""

import numpy as np
import pytest

from pymc_dirdp.inference.log_linear import LogLinearPosterior
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.table_fit import fit_tables, fitted
from pymc_dirdp.networks import joint_fit
from pymc_dirdp.networks.joint_fit import NetworkMarginals, fit_jointly, shares_given_parents
from pymc_dirdp.progress import QUIET


def network(seed):
    """A random directed graph of up to 6 nodes, its tables, and some sets of variables, in random orders."""
    rng = np.random.default_rng(seed)
    nodes = list("abcdef")[: rng.integers(2, 7)]
    sizes = dict(zip(nodes, rng.integers(1, 5, len(nodes)).tolist(), strict=True))
    order, families = rng.permutation(nodes).tolist(), []
    for i, node in enumerate(order):
        parents = rng.permutation(order[:i]).tolist()[: rng.integers(0, min(i, 3) + 1)]
        axes = (*parents, node)
        families.append(Family(f"p_{node}", axes, tuple(sizes[axis] for axis in axes)))
    families = [families[i] for i in rng.permutation(len(families))]
    tables = [rng.dirichlet(np.ones(family.shape[-1]), family.shape[:-1]) for family in families]
    wanted = [family.axes for family in families]
    wanted += [tuple(rng.permutation(nodes)[: rng.integers(1, len(nodes) + 1)].tolist()) for _ in range(6)]
    return families, tables, wanted, rng


@pytest.mark.parametrize("seed", range(6))
def test_marginals_and_their_derivatives(seed):
    """Of the product of all tables; forwards, backwards and the changes of slopes against finite differences."""
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made, n, h = marginals.run(tables), len(tables), 1e-5
    values = marginals.values(made)
    product = ",".join("".join(family.axes) for family in families)
    for found, axes in zip(values, wanted, strict=True):
        np.testing.assert_allclose(found, np.einsum(f"{product}->{''.join(axes)}", *tables), rtol=0, atol=1e-12)
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


# A chain, of which the families alone are measured: what is measured of b and c says something of b.
CHAIN = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("b", "c"), (4, 3)),
    Family("p_d", ("c", "b", "d"), (3, 4, 2)),
]


def truth(seed):
    rng = np.random.default_rng(seed)
    return {family.name: rng.dirichlet(np.full(family.shape[-1], 2.0), family.shape[:-1]) for family in CHAIN}


def joint_of_chain(tables):
    return np.einsum("a,ab,bc,cbd->abcd", *(tables[family.name] for family in CHAIN))


def measured_marginals(tables, n, variances, rng):
    """Noisy marginals of n records; a number is the variance of those of all families."""
    if not isinstance(variances, dict):
        variances = {"".join(family.axes): variances for family in CHAIN}
    p, found = joint_of_chain(tables), []
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape)
    for letters, variance in variances.items():
        table = np.einsum(f"abcd->{letters}", counts)
        found.append(Measurement(tuple(letters), table + rng.normal(0, variance**0.5, table.shape), variance))
    return found


def divergence_of_chain(tables, found):
    p = joint_of_chain(tables)
    return float(np.sum(p * np.log(p / joint_of_chain(found))))


def test_a_marginal_of_no_family_tells_something_of_the_tables_between():
    """B given a is hardly measured; what is measured of a and c, and of b and c, tells it all the same."""
    apart, together = [], []
    for seed in range(3):
        tables = truth(seed)
        variances = {"a": 100.0, "b": 100.0, "ab": 1e6, "bc": 10.0, "ac": 10.0, "cbd": 100.0}
        measured = measured_marginals(tables, 5000, variances, np.random.default_rng(seed))
        apart.append(divergence_of_chain(tables, fit_tables(CHAIN, measured, 5000)))
        together.append(divergence_of_chain(tables, fit_jointly(CHAIN, measured, 5000)))
    assert np.mean(together) < 0.7 * np.mean(apart)


@pytest.mark.parametrize("fit", [fit_tables, fit_jointly])
def test_the_more_records_the_smaller_the_divergence_and_shares_are_shares_for_every_number(fit):
    off = []
    for n, variance in ((10**3, 400.0), (10**5, 400.0), (10**7, 400.0), (0, 1.0), (None, 1e10)):
        found = fit(CHAIN, measured_marginals(truth(1), n or 0, variance, np.random.default_rng(1)), n)
        off.append(divergence_of_chain(truth(1), found))
        for family in CHAIN:
            assert found[family.name].shape == family.shape
            assert np.all(found[family.name] > 0)
            np.testing.assert_allclose(found[family.name].sum(axis=-1), 1, rtol=1e-12)
    assert off[0] > 10 * off[1] > 100 * off[2]
    assert off[2] < 1e-5


def test_the_fit_is_the_mode_given_the_variance_of_the_sample_at_the_fit():
    """The gradient is short with the weights of the fit itself, and long without the variance of the sample."""
    measured = measured_marginals(truth(1), 2000, 1.0, np.random.default_rng(0))
    found = fit_jointly(CHAIN, measured, 2000)
    ordered = [family.sorted for family in CHAIN]
    _, scales = fitted(ordered, measured, 2000, QUIET)
    marginals = NetworkMarginals(ordered, [one.axes for one in measured])
    posterior = LogLinearPosterior(marginals, measured, 2000)
    turned = {one.name: [one.axes.index(axis) for axis in one.sorted.axes] for one in CHAIN}
    mode = posterior.coordinates({name: found[name].transpose(axes) for name, axes in turned.items()})
    of_each = [scales[f.name][e.groups] for f, e in zip(CHAIN, posterior.effects, strict=True)]
    for own in of_each:
        own[..., 0] = 0.0
    of_each = np.concatenate([own.ravel() for own in of_each])
    x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0)
    without = np.linalg.norm(posterior.objective(x, of_each)[1])
    posterior.reweighted(mode)
    assert np.linalg.norm(posterior.objective(x, of_each)[1]) < 0.1
    assert without > 10


def test_shares_given_other_parents_are_those_of_the_joint_distribution():
    p = np.random.default_rng(9).dirichlet(np.full(24, 2.0)).reshape(3, 4, 2)
    a, ab = p.sum(axis=(1, 2)), p.sum(axis=2)
    families = [Family(f"p_{axes[-1]}", tuple(axes), p.shape[: len(axes)]) for axes in ("a", "ab", "abc")]
    shares = {"p_a": a, "p_b": ab / a[:, None], "p_c": p / ab[..., None]}
    wanted = [Family("p_b", ("b",), (4,)), Family("p_c", ("b", "c"), (4, 2)), Family("p_a", ("c", "a"), (2, 3))]
    found = shares_given_parents(families, shares, wanted)
    bc, ca = p.sum(axis=0), p.sum(axis=1).T
    np.testing.assert_allclose(found["p_b"], bc.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found["p_c"], bc / bc.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(found["p_a"], ca / ca.sum(axis=1, keepdims=True), rtol=1e-12)


def joined(names, measured, n=100, size=2, variance=1.0):
    """The axes of the families of a network, after parents that were measured together are joined."""
    families = [Family(f"p_{axes[-1]}", tuple(axes), (size,) * len(axes)) for axes in names.split()]
    noisy = [Measurement(tuple(axes), np.ones((size,) * len(axes)), variance) for axes in measured.split()]
    return " ".join("".join(family.axes) for family in joint_fit.with_co_parents(families, noisy, n))


def test_parents_of_one_variable_that_were_measured_together_are_joined():
    """Joining c and d for e makes a and c parents of d, and these are joined next."""
    assert joined("a b c ad cde", "cde acd") == "a b ac acd cde"
    # No marginal holds a and b together.
    assert joined("a b abc", "ac bc") == "a b abc"
    # No table becomes too large.
    assert joined("a b abc", "ab", n=1e9, size=100) == "a ab abc"
    assert joined("a b abc", "ab", n=1e9, size=101) == "a b abc"
    # Noise hides how they depend on each other. The sum over c has twice the variance; for 10 records a cell it is 100.
    assert joined("a b abc", "abc", n=40, variance=50.0) == "a ab abc"
    assert joined("a b abc", "abc", n=40, variance=50.5) == "a b abc"
    alone = [Family("p_a", ("a",), (2,)), Family("p_b", ("b",), (1,)), Family("p_c", ("a", "b", "c"), (2, 1, 2))]
    apart = joint_fit.with_co_parents(alone, [Measurement(("a", "b"), np.ones((2, 1)), 1.0)], 100)
    assert [family.axes for family in apart] == [family.axes for family in alone]


def test_a_network_whose_elimination_explodes_is_refused_before_anything_is_computed():
    families = [Family(f"p_{i}", (f"v{i}",), (10,)) for i in range(10)]
    families += [Family(f"p_w{i}", (f"v{i}", f"v{i + 1}", f"w{i}"), (10, 10, 2)) for i in range(9)]
    every = Measurement(tuple(f"v{i}" for i in range(10)), np.zeros((1,) * 10), 1.0)
    with pytest.raises(joint_fit.EliminationError, match=r"needs a product of 10+ cells.*consistency='tables'"):
        fit_jointly(families, [every], 100)
    # By another order there would be a product of a cause and its 29 effects.
    families = [Family("p_a", ("a",), (2,)), Family("p_w0", ("w0",), (2,))]
    for i in range(1, 30):
        families.append(Family(f"p_m{i}", ("a", f"m{i}"), (2, 2)))
        families.append(Family(f"p_w{i}", (f"m{i}", f"w{i - 1}", f"w{i}"), (2, 2, 2)))
    assert NetworkMarginals(families, [("w29",)])
