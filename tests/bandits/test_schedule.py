"""Which rules a run has, and which options do not go together."""

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.design import EveryRound

GUARANTEE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def test_batches_are_the_default():
    assert (
        dirdp.ThompsonSampler(["a"], GUARANTEE).design
        == dirdp.ThompsonSampler(["a"], GUARANTEE, schedule="batches", mechanism="geometric").design
    )
    every = dirdp.ThompsonSampler(["a"], GUARANTEE, schedule="every-round", horizon=3)
    assert isinstance(every.design, EveryRound)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "always"}, "schedule 'always'"),
        ({"schedule": None}, "schedule"),
        ({"schedule": "every-round"}, "Pass horizon="),
        ({"schedule": "every-round", "horizon": 0}, "horizon"),
        ({"schedule": "every-round", "horizon": 2.5}, "horizon"),
        ({"horizon": 10}, "horizon= is for schedule='every-round'"),
        ({"schedule": "every-round", "horizon": 3, "mechanism": "geometric"}, "mechanism= is for batches"),
        ({"schedule": "every-round", "horizon": 3, "first_batch": 4}, "first_batch= is for batches"),
        ({"schedule": "every-round", "horizon": 3, "growth": 2.0}, "growth= is for batches"),
        ({"schedule": "every-round", "horizon": 3, "contribution": 1}, "contribution= is for batches"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.ThompsonSampler(["a"], GUARANTEE, **options)
