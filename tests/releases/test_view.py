"""The draws of a noise release: from the exact posterior given the noisy counts, and from nothing else."""

import pickle
from unittest.mock import Mock

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import gammaln, logsumexp
from scipy.stats import ks_2samp

import pymc_dirdp as dirdp
from examples.own_mechanism import BinomialMechanism
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.inference.numbers import TooManyNumbersError
from pymc_dirdp.inference.tables import TablePosterior
from pymc_dirdp.mechanisms.geometric import ZeroSumGeometric
from pymc_dirdp.mechanisms.registry import registered
from pymc_dirdp.releases import view
from pymc_dirdp.releases.draws import draw_shares
from pymc_dirdp.releases.opened import open_release
from pymc_dirdp.releases.view import tree_of
from pymc_dirdp.sampling.drawing import AddedNoise
from tests.planned import hair_model, planned_sample

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.RepeatedReleaseWarning")
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
PRIVATE = {"adjacency": "add-remove", "n_records": 30}
NOTHING = r"'p' no posterior can be computed .* Check its prior"


def two_rows():
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)))
        which = np.repeat([0, 1], [18, 12])
        pm.Categorical("x", p=p[which], observed=np.resize([0, 0, 1, 2], 30))
    return model


def geometric(model, draws, **options):
    return planned_sample(dirdp.PureDP(epsilon=0.5), model, mechanism="geometric", released_draws=draws, **options)


def publishing(monkeypatch, noisy):
    monkeypatch.setattr(AddedNoise, "_drawn", lambda *_: [np.array(noisy, dtype=float)])


CASES = {
    "private": (lambda: hair_model([12, 10, 8]), PRIVATE),
    "rows": (two_rows, {"contribution": 1, "mechanism": "gaussian"}),
    "private rows": (two_rows, PRIVATE | {"contribution": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_draws_have_the_distribution_of_an_analysis(name):
    build, options = CASES[name]
    chosen = {"mechanism": "geometric"} | options
    release = planned_sample(dirdp.ApproxDP(epsilon=0.5, delta=1e-6), build(), released_draws=3000, **chosen)
    own = release["posterior"]["p"].values[0].reshape(3000, -1)
    row_prior = [3.0, 3.0] if "rows" in name else None
    analysed = dirdp.analyse(release, 3000, chains=1, row_prior=row_prior)["posterior"]["p"].values[0].reshape(3000, -1)
    for i in range(own.shape[1]):
        assert ks_2samp(own[:, i], analysed[:, i]).pvalue > 1e-5
    assert dirdp.verify(release)


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
@pytest.mark.parametrize("options", [{}, PRIVATE])
def test_the_counts_reach_the_draws_through_the_noisy_counts_alone(monkeypatch, options):
    publishing(monkeypatch, [5.0, 21.0, 2.0])
    one, other = (geometric(hair_model(x), 50, random_seed=3, **options) for x in ([30, 0, 0], [1, 2, 27]))
    np.testing.assert_array_equal(one["posterior"]["p"].values, other["posterior"]["p"].values)


@pytest.mark.parametrize("sampler", ["exact", "fast"])
def test_the_draws_come_from_another_generator_than_the_noise(monkeypatch, sampler):
    """From many draws the state of a generator can be computed, and with it the noise that was drawn before."""
    used = []
    noise, distribution = ZeroSumGeometric.fast, draw_shares

    def fast(self, shape, rng):
        # Errors are simulated for many tables at a time.
        used.extend([rng] * (shape == (1, 3)))
        return noise(self, shape, rng)

    def given(tables, draws, rng):
        used.append(rng)
        return distribution(tables, draws, rng)

    monkeypatch.setattr(ZeroSumGeometric, "fast", fast)
    monkeypatch.setattr("pymc_dirdp.releases.opened.draw_shares", given)
    assert geometric(hair_model([12, 10, 8]), 5, sampler=sampler)["posterior"]["p"].shape == (1, 5, 3)
    assert len(used) == (sampler == "fast")
    geometric(hair_model([12, 10, 8]), 5, sampler=sampler)["posterior"].load()
    used = used[sampler == "fast" :]
    assert len(used) == (1 if sampler == "exact" else 2)
    assert len({id(rng.bit_generator) for rng in used}) == len(used)


def test_private_numbers_of_records_are_stated_and_follow_from_the_noisy_counts():
    release = geometric(hair_model([12, 10, 8]), 5, **PRIVATE)
    group = release["mechanism/p"]
    possible = open_release(release).tables["p"].mechanism.possible_records(group["noisy_counts"].values)
    assert (group.attrs["least_records"], group.attrs["most_records"]) == (possible[0], possible[-1])
    assert f"{possible[0]} to {possible[-1]} records" in " ".join(str(dirdp.report(release, full=True)).split())
    assert f"{possible[0]} to {possible[-1]} records" in dirdp.analyse(release, 5, chains=1).attrs["conditional_on"]
    group.attrs["most_records"] += 1
    assert not dirdp.verify(release)


def test_a_prior_that_contradicts_a_private_number_is_drawn_with_all_the_same(monkeypatch):
    """Found by random models: all totals that noise made possible were refused, after the charge and without an end.

    The draws are those of the numbers that the release says are taken for possible, each as likely as another.
    """
    model = hair_model([5, 40_000], prior=[2000.0, 1.0])
    publishing(monkeypatch, [5, 40_000])
    release = geometric(model, 500, adjacency="add-remove", n_records=40_005)
    least, most = (release["mechanism/p"].attrs[f"{end}_records"] for end in ("least", "most"))

    def weights(first, second):
        """Of all tables, each total as likely as another: logarithms, and the totals."""
        logs = gammaln(first + 2000) - gammaln(first + 1) - np.abs(first - 5) / 2 - np.abs(second - 40_000) / 2
        total = first + second
        return logs + gammaln(total + 1) - gammaln(total + 2001), total

    first, second = np.arange(3000.0)[:, None], np.arange(37_500.0, 40_300.0)
    logs, total = weights(first, second)
    logs = np.where((total >= least) & (total <= most), logs, -np.inf)
    masses = np.exp(logs - logsumexp(logs))
    share = (first + 2000) / (total + 2001)
    mean = (masses * share).sum()
    variance = (masses * (share**2 + share * (1 - share) / (total + 2002))).sum() - mean**2
    drawn = release["posterior"]["p"].values[0, :, 0]
    assert drawn.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 500))
    assert drawn.var() == pytest.approx(variance, rel=0.3)


def test_noise_that_hides_any_number_of_records_is_refused_before_a_charge():
    """Found by random models: draws given such noise, which says nothing, took for ever."""
    model, ledger = hair_model([15] * 4), dirdp.Ledger(TARGET, adjacency="add-remove")
    options = {"mechanism": "geometric", "adjacency": "add-remove", "n_records": 60}
    with pytest.raises(UnattainableError, match="hides any number of records, so the release would tell nothing"):
        planned_sample(dirdp.ApproxDP(epsilon=0.0, delta=1e-15), model, ledger=ledger, **options)
    assert not ledger.entries()
    drawn = planned_sample(dirdp.ApproxDP(epsilon=0.0, delta=1e-13), model, ledger=ledger, **options)
    assert np.isfinite(drawn["posterior"]["p"]).all()


class Rough(BinomialMechanism):
    """Noise of which it is not known that its distribution is smooth."""


@pytest.mark.parametrize(
    ("build", "mechanism", "match"),
    [
        (lambda: hair_model([10**7, 10**7]), Rough.kind, r"smooth_noise.*'p'"),
        # Draws of such a release, or its estimates, said that it was damaged, once it had been paid for.
        (lambda: hair_model([12, 10, 8], prior=[1e-120] * 3), "geometric", NOTHING),
        (lambda: hair_model([12, 10, 8], prior=[1e17] * 3), "geometric", NOTHING),
    ],
)
def test_a_table_without_a_posterior_is_refused_before_the_charge(build, mechanism, match):
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5))
    with registered(Rough), pytest.raises(ArgumentError, match=match):
        dirdp.sample(TARGET, build(), mechanism=mechanism, ledger=ledger)
    assert not ledger.entries()


def test_a_table_that_takes_too_long_to_draw_from_is_refused_before_the_charge(monkeypatch):
    problem = TooManyNumbersError("The output has so little information that exact sums take too long.")
    monkeypatch.setattr(TablePosterior, "check", Mock(side_effect=problem))
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5))
    with pytest.raises(ArgumentError, match=r"loosen the guarantee: 6 cells with .* in 'p' .* to draw their posterior"):
        dirdp.sample(TARGET, two_rows(), contribution=1, mechanism="geometric", ledger=ledger)
    assert not ledger.entries()


def test_a_notebook_shows_the_report_of_a_release_above_its_groups():
    release = dirdp.sample(TARGET, hair_model([70, 30], labels=["yes <b>", "no"]))
    for tree in (release, release.copy(deep=True), pickle.loads(pickle.dumps(release))):
        page, _, groups = tree._repr_html_().partition("<details>")
        assert page == dirdp.report(release)._repr_html_()
        for words in ("yes &lt;b&gt;", "typically off by", "protects", "epsilon 1 at delta 1e-06", "dirdp.analyse"):
            assert words in page
        assert "<b>" not in page + groups
        assert "mechanism" in groups
    assert "protects" not in release["posterior"]._repr_html_()
    release["posterior"]["p"].values[:] = 0.5
    page, _, _ = release._repr_html_().partition("<details>")
    assert "problem" in page
    assert "at most" not in page
    del release["release"]
    assert "problem" not in release._repr_html_()
    assert "<details><summary>" not in release._repr_html_()


def groups():
    posterior = {"p": (("chain", "draw", "k"), np.ones((1, 2, 3))), "q": ((), 1.0)}
    coords = {"chain": [0], "draw": [0, 1], "k": ["a", "b", "c"], "of_k": ("k", [1, 2, 3])}
    prior = {"prior": ("k", [1.0, 2.0])}
    return {
        "/posterior": xr.Dataset(posterior, coords, {"note": "x"}),
        "/mechanism": xr.Dataset(attrs={"what": "y"}),
        "/mechanism/p": xr.Dataset(prior, {"k": [5, 7]}),
        "/mechanism/q/r": xr.Dataset(prior),
    }


@pytest.mark.parametrize("put", [view._PUT, "no such function"])
def test_trees_are_those_of_xarray(put, monkeypatch):
    """Oracle: `DataTree.from_dict`, with the order of the groups; with and without the function of xarray."""
    monkeypatch.setattr(view, "_PUT", put)
    given = groups()
    tree, oracle = tree_of(given), xr.DataTree.from_dict(groups())
    assert tree.identical(oracle)
    assert tree.groups == oracle.groups
    assert tree["posterior"].to_dataset().xindexes.keys() == oracle["posterior"].to_dataset().xindexes.keys()
    assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 2, "k": 3}
    assert str(tree) == str(oracle)
    tree["posterior"].attrs["note"] = "changed"
    tree["posterior"]["more"] = 1.0
    assert given["/posterior"].identical(groups()["/posterior"])
    assert tree_of({}).identical(xr.DataTree())
    # A group is compared with those above it.
    with pytest.raises(ValueError, match="not aligned"):
        tree_of({f"/{path}": xr.Dataset(coords={"k": range(k)}) for k, path in enumerate(["a", "a/b"], 1)})
