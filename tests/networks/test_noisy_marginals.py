"""What a release says of its tables, as measurements of marginals."""

import json

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.networks.fitting import measurements_of

RECORDS = {"a": list("xxy") * 20, "one": ["any"] * 60, "b": list("pqq") * 20}
CATEGORIES = {"a": ["x", "y"], "one": ["any"], "b": ["p", "q"]}
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)


def model():
    return dirdp.bayesian_network(RECORDS, {"a": [], "one": ["a"], "b": ["a"]}, categories=CATEGORIES)


@pytest.mark.parametrize("mechanism", ["marginals", "geometric", "gaussian"])
def test_noisy_counts_are_measurements_with_the_variance_of_their_noise(mechanism):
    release = dirdp.sample(TARGET, model(), mechanism=mechanism)
    families, measurements, n_records = measurements_of(release)
    assert [(one.name, one.axes, one.shape) for one in families] == [("p_a", ("a",), (2,)), ("p_b", ("a", "b"), (2, 2))]
    assert n_records == 60
    marginals = [("a",), ("b",), ("a", "b")] if mechanism == "marginals" else [("a",), ("a", "b")]
    assert [one.axes for one in measurements] == marginals
    last = release["mechanism/p_b"]

    def free(sd, cells):
        """Noise that adds up to 0 is independent noise of a larger variance, given its sum."""
        return sd**2 * (cells / (cells - 1) if last.attrs["mechanism"].startswith("ZeroSum") else 1)

    if mechanism == "marginals":
        assert np.array_equal(measurements[-1].noisy, last["noisy_counts_0_1"].values)
        sds = [sd for name in ("p_a", "p_b") for sd in json.loads(release[f"mechanism/{name}"].attrs["noise_sds"])]
        expected = [free(sd, cells) for sd, cells in zip(sds, (2, 2, 4), strict=True)]
        assert [one.variance for one in measurements] == pytest.approx(expected)
    else:
        assert np.array_equal(measurements[-1].noisy, last["noisy_counts"].values)
        assert measurements[-1].variance == pytest.approx(free(float(last["noise_sd"]), 4))


def test_a_private_number_of_records_and_draws_that_are_the_release_are_no_part_of_it():
    release = dirdp.sample(TARGET, model(), mechanism="marginals", adjacency="add-remove", n_records=77)
    assert measurements_of(release)[2] is None
    with pytest.raises(ArgumentError, match="no noisy counts of 'p_a'"):
        measurements_of(dirdp.sample(TARGET, model()))


def test_what_contradicts_itself_is_not_read(edited):
    release = dirdp.sample(TARGET, model(), mechanism="marginals")
    names = [one["name"] for one in json.loads(release["release"]["text"].item())["plan"]["tables"]]
    place = ("plan", "tables", names.index("p_b"), "parameters", "noise_parameters")
    with pytest.raises(ReleaseError):
        measurements_of(edited(release, (place, [1e-3, 1e-3])))
