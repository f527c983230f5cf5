"""Whoever releases with a seed, or again without a ledger, is warned where they call."""

import warnings

import pymc as pm
import pytest

import pymc_dirdp as dirdp

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "release",
    [
        lambda model: dirdp.sample(TARGET, model, random_seed=1),
        lambda _: dirdp.release_sparse(TARGET, [5], [700], 10**6, threshold=60, random_seed=1),
    ],
)
def test_a_seed_warns_where_it_was_given(release):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=[1.0, 2.0])
        pm.Multinomial("answers", n=14, p=p, observed=[4, 10])
    with pytest.warns(dirdp.SeededReleaseWarning, match="not private") as caught:
        release(model)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.RepeatedReleaseWarning")
def test_a_second_release_without_a_ledger_warns_once():
    with pm.Model() as model:
        p = pm.Dirichlet("released_again", a=[1.0, 2.0, 3.5])
        pm.Multinomial("answers", n=20, p=p, observed=[4, 6, 10])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            dirdp.sample(TARGET, model)
        ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5))
        dirdp.sample(TARGET, model, ledger=ledger)
    assert [warning.category for warning in caught] == [dirdp.RepeatedReleaseWarning]
    assert "ledger=" in str(caught[0].message)
    assert caught[0].filename == __file__
