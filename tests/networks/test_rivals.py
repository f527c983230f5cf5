"""What the documentation says of the networks of the literature beside ours, by the figures that were measured."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

FIGURES = Path(__file__).parents[1] / "benchmarks" / "network_rivals.csv"
OURS = "marginals, fitted together"
# Log-likelihoods of a held-out record that were to be reached on average, at epsilon 0.1, 0.3, 1 and 3, as they were
# rounded then.
BARS = {"german_credit": (-19.8, -17.6, -16.3, -15.8), "adult": (-8.21, -8.09, -8.00, -7.975)}
EPSILONS = ("0.1", "0.3", "1", "3")


@pytest.fixture(scope="module")
def likelihoods():
    """By data and epsilon, by method, by split."""
    found = defaultdict(lambda: defaultdict(dict))
    with FIGURES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["data"], row["epsilon"]][row["method"]][row["split"]] = float(row["log_likelihood"])
    return found


@pytest.mark.parametrize("data", BARS)
def test_the_joint_fit_reaches_the_bars_that_were_set(likelihoods, data):
    for epsilon, bar in zip(EPSILONS, BARS[data], strict=True):
        assert np.mean(list(likelihoods[data, epsilon][OURS].values())) >= bar - 0.005


@pytest.mark.parametrize("data", BARS)
def test_no_split_is_lost_to_private_pgm_whatever_is_added_to_its_cells(likelihoods, data):
    for epsilon in EPSILONS:
        methods = likelihoods[data, epsilon]
        rivals = [splits for name, splits in methods.items() if name.startswith("private-PGM")]
        assert len(rivals) == 3
        lead = [methods[OURS][split] - max(one[split] for one in rivals) for split in rivals[0]]
        assert min(lead) > 0
        # As it stands, it is far behind where noise is wide.
        own = [methods[OURS][split] - score for split, score in methods["private-PGM"].items()]
        if epsilon == "0.1":
            assert min(own) > 3.9
            assert np.mean(lead) > {"german_credit": 0.8, "adult": 1.0}[data]
