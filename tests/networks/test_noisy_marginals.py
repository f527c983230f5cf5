"""What a release says of its tables, as measurements of marginals."""

import json

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.networks.fitting import measurements_of
from pymc_dirdp.releases.axes import cell_dims
from pymc_dirdp.releases.draws import fitted_shares, measurements_of_table

RECORDS = {"a": list("xxy") * 20, "one": ["any"] * 60, "b": list("pqq") * 20}
CATEGORIES = {"a": ["x", "y"], "one": ["any"], "b": ["p", "q"]}
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)


def model():
    return dirdp.bayesian_network(RECORDS, {"a": [], "one": ["a"], "b": ["a"]}, categories=CATEGORIES)


@pytest.mark.parametrize("mechanism", ["marginals", "geometric", "gaussian"])
def test_noisy_counts_are_measurements_with_the_variance_of_their_noise(mechanism):
    release = dirdp.sample(TARGET, model(), mechanism=mechanism)
    families, measurements, n_records = measurements_of(release)
    assert [(one.name, one.axes, one.shape) for one in families] == [
        ("p_a", ("a",), (2,)),
        ("p_b", ("a", "b"), (2, 2)),
    ]
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


def test_a_private_number_of_records_is_no_part_of_it():
    release = dirdp.sample(TARGET, model(), mechanism="marginals", adjacency="add-remove", n_records=77)
    assert measurements_of(release)[2] is None


def test_draws_that_are_the_release_are_no_measurements():
    release = dirdp.sample(TARGET, model())
    with pytest.raises(ArgumentError, match="no noisy counts of 'p_a'"):
        measurements_of(release)


def test_what_contradicts_itself_is_not_read(edited):
    release = dirdp.sample(TARGET, model(), mechanism="marginals")
    names = [one["name"] for one in json.loads(release["release"]["text"].item())["plan"]["tables"]]
    place = ("plan", "tables", names.index("p_b"), "parameters", "noise_parameters")
    with pytest.raises(ReleaseError):
        measurements_of(edited(release, (place, [1e-3, 1e-3])))


def test_shares_are_fitted_to_the_tables_of_a_plan():
    plan = dirdp.plan(TARGET, model(), mechanism="marginals")
    counts = {"p_a": np.array([40.0, 20.0]), "p_b": np.array([[20.0, 20.0], [0.0, 20.0]])}
    published = {
        part.table.name: part.mechanism.draw(counts[part.table.name], 1, sampler="exact", random_seed=None)
        for part in plan.parts
        if part.table.name in counts
    }
    parts = {part.table.name: part for part in plan.parts}
    measured = [
        measurements_of_table(name, tuple(cell_dims(parts[name].table)), parts[name].mechanism, output)
        for name, output in published.items()
    ]
    shares = fitted_shares(measured, 60)
    assert set(shares) == set(counts)
    np.testing.assert_allclose(shares["p_b"].sum(axis=-1), 1.0)
    family, measurements = measurements_of_table(
        "p_b", tuple(cell_dims(plan.parts[2].table)), plan.parts[2].mechanism, published["p_b"]
    )
    assert family.axes == ("a", "b")
    assert len(measurements) == 2
    assert fitted_shares([], 60) == {}
