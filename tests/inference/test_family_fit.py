import numpy as np
import pytest

from pymc_dirdp.inference.family_fit import MOST_ROUNDS, fit_tables, fitted, noise_hides
from pymc_dirdp.inference.family_posterior import FamilyPosterior
from pymc_dirdp.inference.margins import Family, Measurement
from pymc_dirdp.progress import QUIET, Bar

FAMILIES = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("a", "b", "c"), (3, 4, 2)),
]


def joint(rng):
    return rng.dirichlet(np.full(24, 2.0)).reshape(3, 4, 2)


def levels(p, n, variance, rng, spread=True):
    """Noisy marginals of n records, or of the expected counts."""
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape) if spread else n * p
    margins = {"a": (1, 2), "b": (0, 2), "ab": (2,), "c": (0, 1), "ac": (1,), "bc": (0,), "abc": ()}
    return [
        Measurement(tuple(axes), (table := counts.sum(axis=over)) + rng.normal(0, variance**0.5, table.shape), variance)
        for axes, over in margins.items()
    ]


def conditional(p):
    a, ab = p.sum(axis=(1, 2)), p.sum(axis=2)
    return {"p_a": a, "p_b": ab / a[:, None], "p_c": p / ab[..., None]}


def divergence(p, tables):
    """The KL divergence of the fitted network from the true shares of records, in nats."""
    true = conditional(p)
    weights = {"p_a": 1.0, "p_b": p.sum(axis=(1, 2))[:, None], "p_c": p.sum(axis=2)[..., None]}
    return sum(np.sum(weights[name] * q * np.log(q / tables[name])) for name, q in true.items())


def clipped(measured):
    """What one does without a model: the family's own table, without what is negative, and half a record more."""
    found = {}
    for family in FAMILIES:
        own = next(one for one in measured if one.axes == family.axes)
        cells = np.maximum(own.noisy, 0) + 0.5
        found[family.name] = cells / cells.sum(axis=-1, keepdims=True)
    return found


def test_the_more_records_the_smaller_the_divergence():
    p = joint(np.random.default_rng(1))
    found = []
    for n in (10**3, 10**5, 10**7):
        fits = [fit_tables(FAMILIES, levels(p, n, 400.0, np.random.default_rng(i)), n) for i in range(5)]
        found.append(np.mean([divergence(p, fit) for fit in fits]))
    assert found[0] > 10 * found[1] > 100 * found[2]
    assert found[2] < 1e-5


def test_the_fit_is_better_than_the_families_own_tables():
    p = joint(np.random.default_rng(1))
    fitted, own = [], []
    for i in range(20):
        measured = levels(p, 500, 600.0, np.random.default_rng(i))
        fitted.append(divergence(p, fit_tables(FAMILIES, measured, 500)))
        own.append(divergence(p, clipped(measured)))
    assert np.mean(fitted) < 0.4 * np.mean(own)


def test_what_the_noise_hides_is_left_out():
    """Shares of one in ten with a noise of ten thousand: all tables are nearly uniform, and none is at an edge."""
    p = joint(np.random.default_rng(1))
    found = fit_tables(FAMILIES, levels(p, 100, 1e8, np.random.default_rng(0)), 100)
    for family in FAMILIES:
        np.testing.assert_allclose(found[family.name], 1 / family.shape[-1], atol=0.05)


def test_independence_is_found_where_it_is_true():
    """The interactions of a product distribution are shrunk more than those of a distribution that has them."""
    rng = np.random.default_rng(4)
    product = np.einsum("a,b,c->abc", rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(2)))
    measured = levels(product, 5000, 900.0, rng)
    found = fit_tables(FAMILIES, measured, 5000)["p_c"]
    assert np.ptp(found, axis=(0, 1)).max() < 0.5 * np.ptp(clipped(measured)["p_c"], axis=(0, 1)).max()


def test_the_order_of_parents_families_and_measurements_makes_no_difference():
    p = joint(np.random.default_rng(1))
    measured = levels(p, 800, 100.0, np.random.default_rng(0))
    first = fit_tables(FAMILIES, measured, 800)
    turned = [Measurement(one.axes[::-1], one.noisy.transpose(), one.variance) for one in reversed(measured)]
    families = [Family("p_c", ("b", "a", "c"), (4, 3, 2)), *FAMILIES[:2]]
    second = fit_tables(families, turned, 800)
    np.testing.assert_allclose(second["p_c"].transpose(1, 0, 2), first["p_c"], rtol=1e-4)
    np.testing.assert_allclose(second["p_b"], first["p_b"], rtol=1e-4)


def test_a_private_number_of_records_is_read_off_the_totals():
    p = joint(np.random.default_rng(1))
    measured = levels(p, 5000, 25.0, np.random.default_rng(0))
    with_n, without = fit_tables(FAMILIES, measured, 5000), fit_tables(FAMILIES, measured, None)
    for name, table in with_n.items():
        np.testing.assert_allclose(without[name], table, rtol=0.02)


@pytest.mark.parametrize("n", [0, 1, 10**9])
@pytest.mark.parametrize("variance", [1e-3, 1.0, 1e10])
def test_shares_are_shares_for_every_number_of_records_and_noise(n, variance):
    p = joint(np.random.default_rng(1))
    found = fit_tables(FAMILIES, levels(p, n, variance, np.random.default_rng(0)), n)
    for family in FAMILIES:
        table = found[family.name]
        assert table.shape == family.shape
        assert np.all(table > 0)
        np.testing.assert_allclose(table.sum(axis=-1), 1, rtol=1e-12)


def test_many_parents_and_variables_of_one_value():
    axes = ("a", "b", "c", "d", "e", "f")
    family = Family("p_f", axes, (2, 3, 1, 2, 2, 2))
    p = np.random.default_rng(0).dirichlet(np.ones(48)).reshape(family.shape)
    measured = [Measurement(axes, 1e6 * p, 1.0)]
    found = fit_tables([family], measured, 10**6)["p_f"]
    np.testing.assert_allclose(found, p / p.sum(axis=-1, keepdims=True), atol=0.02)


def test_the_bar_never_counts_more_than_was_announced():
    p = joint(np.random.default_rng(1))
    with Bar((MOST_ROUNDS + 1) * 3, "tables", shown=False) as bar:
        fit_tables(FAMILIES, levels(p, 800, 100.0, np.random.default_rng(0)), 800, bar)
        assert 0 < bar._done <= bar._total


def test_each_table_ends_where_the_gradient_is_short(monkeypatch):
    """Lengths are looked at, and not numbers of steps: in coordinates of which the prior has the variance 1."""
    lengths = {}
    found_by = FamilyPosterior.mode

    def watched(self, start, scales, close):
        found = found_by(self, start, scales, close)
        of_each = scales[self.effects.groups]
        x = np.divide(found, of_each, out=np.zeros(found.shape), where=of_each > 0)
        lengths[self.effects.shape] = np.linalg.norm(self.objective(x.ravel(), of_each)[1])
        return found

    monkeypatch.setattr(FamilyPosterior, "mode", watched)
    p = joint(np.random.default_rng(1))
    fit_tables(FAMILIES, levels(p, 10**5, 25.0, np.random.default_rng(0)), 10**5)
    assert len(lengths) == 3
    assert max(lengths.values()) <= 1e-3


def test_draws_around_the_mode_have_the_inverse_curvature_as_covariance():
    """Of the coordinates divided by their scales, in each direction that linear algebra looks at."""
    p = joint(np.random.default_rng(1))
    posterior = FamilyPosterior(FAMILIES[2], levels(p, 300, 900.0, np.random.default_rng(0)), 300)
    scales = np.where(posterior.effects.orders == 0, 0.0, 0.7)
    mode = posterior.mode(posterior.start(), scales, 1e-6)
    posterior.reweighted(mode)
    draws = posterior.spread(mode, scales, np.random.default_rng(3), 8000)
    of_each = scales[posterior.effects.groups]
    kept = of_each.ravel() > 0
    off = ((draws - mode).reshape(8000, -1) / np.where(kept, of_each.ravel(), 1))[:, kept]
    x = (mode / np.where(of_each > 0, of_each, 1)).ravel()
    matrix = posterior.curvature(x, of_each, gauss_newton=True)(np.eye(x.size))[np.ix_(kept, kept)]
    np.testing.assert_allclose(off.mean(axis=0), 0, atol=1e-12)
    values, vectors = np.linalg.eigh(matrix)
    ratios = (off @ vectors).var(axis=0) * values
    # The draws come in pairs, so there are 4000.
    np.testing.assert_allclose(ratios, 1, atol=6 * (2 / 4000) ** 0.5)
    assert np.ptp((off**2).mean(axis=0)) > 0.3


def test_the_mean_is_taken_where_noise_hides_most_and_it_is_better_there():
    p = joint(np.random.default_rng(1))
    means, modes = [], []
    for i in range(15):
        measured = levels(p, 300, 150.0**2, np.random.default_rng(i))
        assert noise_hides(measured, 300)
        means.append(divergence(p, fit_tables(FAMILIES, measured, 300)))
        modes.append(divergence(p, fitted([family.sorted for family in FAMILIES], measured, 300, QUIET)[0]))
    assert np.mean(means) < 0.8 * np.mean(modes)
    assert not noise_hides(levels(p, 300, 25.0**2, np.random.default_rng(0)), 300)
