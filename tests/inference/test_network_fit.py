import numpy as np
import pytest

from pymc_dirdp.inference.family_fit import fit_tables, fitted
from pymc_dirdp.inference.margins import Family, Measurement
from pymc_dirdp.inference.network_fit import fit_jointly
from pymc_dirdp.inference.network_margins import EliminationError
from pymc_dirdp.inference.network_posterior import NetworkPosterior
from pymc_dirdp.progress import QUIET

# A chain, of which the families alone are measured: what is measured of b and c says something of b.
FAMILIES = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("b", "c"), (4, 3)),
    Family("p_d", ("c", "b", "d"), (3, 4, 2)),
]
LETTERS = {"p_a": "a", "p_b": "ab", "p_c": "bc", "p_d": "cbd"}


def truth(seed):
    rng = np.random.default_rng(seed)
    return {family.name: rng.dirichlet(np.full(family.shape[-1], 2.0), family.shape[:-1]) for family in FAMILIES}


def joint(tables):
    return np.einsum("a,ab,bc,cbd->abcd", *(tables[family.name] for family in FAMILIES))


def measured_margins(tables, n, variances, rng):
    """Noisy marginals of n records, by the letters of the axes."""
    p = joint(tables)
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape)
    found = []
    for letters, variance in variances.items():
        table = np.einsum(f"abcd->{letters}", counts)
        found.append(Measurement(tuple(letters), table + rng.normal(0, variance**0.5, table.shape), variance))
    return found


def families_measured(tables, n, variance, rng):
    return measured_margins(tables, n, dict.fromkeys(LETTERS.values(), variance), rng)


def divergence(tables, found):
    p = joint(tables)
    return float(np.sum(p * np.log(p / joint(found))))


def test_a_margin_of_no_family_tells_something_of_the_tables_between():
    """B given a is hardly measured; what is measured of a and c, and of b and c, tells it all the same."""
    apart, together = [], []
    for seed in range(12):
        tables = truth(seed)
        variances = {"a": 100.0, "b": 100.0, "ab": 1e6, "bc": 10.0, "ac": 10.0, "cbd": 100.0}
        measured = measured_margins(tables, 5000, variances, np.random.default_rng(seed))
        apart.append(divergence(tables, fit_tables(FAMILIES, measured, 5000)))
        together.append(divergence(tables, fit_jointly(FAMILIES, measured, 5000)))
    assert np.mean(together) < 0.7 * np.mean(apart)


def test_the_more_records_the_smaller_the_divergence():
    found = []
    for n in (10**3, 10**5, 10**7):
        fits = []
        for seed in range(3):
            tables = truth(seed)
            measured = families_measured(tables, n, 400.0, np.random.default_rng(seed))
            fits.append(divergence(tables, fit_jointly(FAMILIES, measured, n)))
        found.append(np.mean(fits))
    assert found[0] > 10 * found[1] > 100 * found[2]


def test_the_order_of_parents_families_and_measurements_makes_no_difference():
    tables = truth(1)
    measured = families_measured(tables, 3000, 100.0, np.random.default_rng(0))
    first = fit_jointly(FAMILIES, measured, 3000)
    turned = [Measurement(one.axes[::-1], one.noisy.transpose(), one.variance) for one in reversed(measured)]
    second = fit_jointly([Family("p_d", ("b", "c", "d"), (4, 3, 2)), *FAMILIES[:3]], turned, 3000)
    np.testing.assert_allclose(second["p_d"].transpose(1, 0, 2), first["p_d"], rtol=1e-2)
    np.testing.assert_allclose(second["p_b"], first["p_b"], rtol=1e-2)


@pytest.mark.parametrize("n", [0, 1, None, 10**9])
@pytest.mark.parametrize("variance", [1e-3, 1e10])
def test_shares_are_shares_for_every_number_of_records_and_noise(n, variance):
    measured = families_measured(truth(1), n or 0, variance, np.random.default_rng(0))
    found = fit_jointly(FAMILIES, measured, n)
    for family in FAMILIES:
        assert found[family.name].shape == family.shape
        assert np.all(found[family.name] > 0)
        np.testing.assert_allclose(found[family.name].sum(axis=-1), 1, rtol=1e-12)


def test_a_network_whose_margins_explode_is_refused():
    families = [Family(f"p_{i}", (f"v{i}",), (10,)) for i in range(10)]
    families += [Family(f"p_w{i}", (f"v{i}", f"v{i + 1}", f"w{i}"), (10, 10, 2)) for i in range(9)]
    every = tuple(f"v{i}" for i in range(10))
    with pytest.raises(EliminationError, match="consistency='tables'"):
        fit_jointly(families, [Measurement(every, np.zeros((1,) * 10), 1.0)], 100)


def test_the_fit_is_the_mode_given_the_variance_of_the_sample_at_the_fit():
    """The gradient is short with the weights of the fit itself, and long without the variance of the sample."""
    measured = families_measured(truth(1), 2000, 1.0, np.random.default_rng(0))
    found = fit_jointly(FAMILIES, measured, 2000)
    ordered = [family.sorted for family in FAMILIES]
    _, scales = fitted(ordered, measured, 2000, QUIET)
    posterior = NetworkPosterior(ordered, measured, 2000)
    mode = posterior.coordinates(
        {
            family.name: found[family.name].transpose([family.axes.index(a) for a in family.sorted.axes])
            for family in FAMILIES
        }
    )
    of_each = [scales[f.name][e.groups] for f, e in zip(FAMILIES, posterior.effects, strict=True)]
    for own in of_each:
        own[..., 0] = 0.0
    x = np.concatenate(
        [np.divide(m, s, out=np.zeros(s.shape), where=s > 0).ravel() for m, s in zip(mode, of_each, strict=True)]
    )
    without = np.linalg.norm(posterior.objective(x, of_each)[1])
    posterior.reweighted(mode)
    assert np.linalg.norm(posterior.objective(x, of_each)[1]) < 0.1
    assert without > 10


def test_the_fit_ends_where_the_gradient_is_short(monkeypatch):
    """Lengths are looked at, and not numbers of steps: in coordinates of which the prior has the variance 1."""
    lengths = []
    found_by = NetworkPosterior.mode

    def watched(self, start, scales, close):
        found = found_by(self, start, scales, close)
        of_each = [own[effects.groups] for own, effects in zip(scales, self.effects, strict=True)]
        for own in of_each:
            own[..., 0] = 0.0
        pairs = zip(found, of_each, strict=True)
        x = [np.divide(table, own, out=np.zeros(own.shape), where=own > 0).ravel() for table, own in pairs]
        lengths.append(np.linalg.norm(self.objective(np.concatenate(x), of_each)[1]))
        return found

    monkeypatch.setattr(NetworkPosterior, "mode", watched)
    fit_jointly(FAMILIES, families_measured(truth(1), 10**5, 25.0, np.random.default_rng(0)), 10**5)
    assert len(lengths) == 2
    assert lengths[-1] <= 1e-3
