"""What follows from a release is computed once, whichever verbs ask for it."""

import gc

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.networks import fitting
from pymc_dirdp.releases import draws, predicting
from pymc_dirdp.releases import opened as opening
from pymc_dirdp.releases.cache import Cache
from pymc_dirdp.releases.choices import Bins
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
RNG = np.random.default_rng(20261129)
AGES = RNG.gamma(4, 12, 1000)
WORDS = {"rain": ["no", "yes"], "wet": ["no", "yes"], "old": ["no", "yes"]}


def records():
    rain = RNG.choice(["no", "yes"], 1000)
    return {
        "rain": rain,
        "wet": np.where(RNG.random(1000) < 0.9, rain, "no"),
        "old": RNG.choice(["no", "yes"], 1000),
    }


@pytest.fixture
def fits(monkeypatch):
    """How often tables were fitted to what a release published; nothing was opened before."""
    monkeypatch.setattr(opening, "_OPENED", Cache(2**28))
    calls = {"tables": 0, "joint": 0}

    def counting(kind, fit):
        def fitted(*args, **named):
            calls[kind] += 1
            return fit(*args, **named)

        return fitted

    # Expected errors are fitted to simulated networks, and not to what was released: they are not counted.
    assert predicting.fitted_shares is draws.fitted_shares
    monkeypatch.setattr(opening, "fitted_shares", counting("tables", draws.fitted_shares))
    monkeypatch.setattr(fitting, "fit_tables", counting("tables", fitting.fit_tables))
    monkeypatch.setattr(fitting, "fit_jointly", counting("joint", fitting.fit_jointly))
    return calls


def network(mechanism):
    data = records()
    structure = dirdp.choose_structure(dirdp.PureDP(epsilon=0.3), data, categories=WORDS)
    model = dirdp.bayesian_network(data, structure, categories=WORDS)
    return planned_sample(APPROX, model, mechanism=mechanism, after=structure)


def test_a_network_of_marginals_is_fitted_once(fits, tmp_path):
    release = network("marginals")
    path = tmp_path / "r.json"
    dirdp.save(release, path)
    for tree in (release, dirdp.load(path), path, release.copy(deep=True)):
        str(dirdp.report(tree, full=True))
        assert dirdp.verify(tree)
        dirdp.estimate(tree)
        str(dirdp.statement(tree))
    np.asarray(dirdp.load(path)["posterior"]["p_rain"].values)
    assert fits == {"tables": 1, "joint": 0}
    first, second = dirdp.fit(release, progressbar=False), dirdp.fit(path, progressbar=False)
    assert first.identical(second)
    assert fits == {"tables": 1, "joint": 1}
    dirdp.predict_log_proba(release, records(), target="wet")
    dirdp.log_likelihood(path, records())
    assert fits == {"tables": 1, "joint": 1}
    # Another consistency is another fit.
    for _ in range(2):
        dirdp.fit(release, "tables", progressbar=False)
    assert fits == {"tables": 2, "joint": 1}


def chosen(ages=AGES):
    """No other test has such edges."""
    return dirdp.choose_bins(
        dirdp.PureDP(epsilon=0.2), {"age": ages}, "age", n_bins=2, candidates=np.arange(20.375, 80), ledger=None
    )


def by_age(bins):
    data = records() | {"age": bins.label(AGES)}
    categories = WORDS | {"age": bins.labels}
    return dirdp.bayesian_network(data, {"age": [], "wet": ["age"]}, categories=categories)


def test_bins_that_a_cached_release_holds_are_nobodys(tmp_path):
    """A cache is nobody who could count with them; who has them still has to pay."""
    bins = chosen()
    model = by_age(bins)
    release = planned_sample(APPROX, model, after=bins)
    assert opening.open_release(release).plan.after == (bins,)
    # The user's own are looked for as before.
    assert [own for own in Bins.unpaid() if own == bins] == [bins]
    assert any(own is bins for own in Bins.unpaid())
    assert all(own is bins for own in Bins.unpaid() if own == bins)
    with pytest.raises(ArgumentError, match="nothing covers"):
        dirdp.plan(APPROX, model)
    # Those of a file that a release was read from, too.
    dirdp.save(release, tmp_path / "r.json")
    opening._OPENED.clear()
    loaded = dirdp.load(tmp_path / "r.json")
    assert opening.open_release(loaded).plan.after == (bins,)
    assert all(own is bins for own in Bins.unpaid() if own == bins)
    with pytest.raises(ArgumentError, match="nothing covers"):
        dirdp.plan(APPROX, model)
    copied = bins.text
    del bins
    gc.collect()
    assert not [own for own in Bins.unpaid() if own.text == copied]
    # A plan with such names is one like any other now.
    assert dirdp.plan(APPROX, model)
