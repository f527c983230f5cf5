"""False statements of a release of a sparse table are found, whatever is changed."""

import pytest

from pymc_dirdp import ApproxDP, PureDP, release_sparse, verify


@pytest.fixture
def release():
    return release_sparse(PureDP(epsilon=1), [5], [700], 10**6, threshold=60, unit="patient", contribution=2)


def test_a_true_one(release):
    found = verify(release)
    assert found
    assert found.kept == PureDP(epsilon=1)
    assert "one patient, with 2 of the records" in str(found).replace("\n              ", " ")


@pytest.mark.parametrize(
    ("group", "name", "value", "check"),
    [
        ("privacy", "epsilon", 0.9, "guarantee"),
        ("privacy", "statement", "0.9-differential privacy", "statement"),
        ("privacy", "pure_epsilon", 0.9, "statement"),
        ("/", "guarantee", "0.9-differential privacy", "statement"),
        ("privacy", "adjacency", "add-remove", "adjacency"),
        ("/", "adjacency", "add-remove", "adjacency"),
        ("privacy", "contribution", 1, "people"),
        ("mechanism", "contribution", 3, "guarantee"),
        ("privacy", "neighbours", "nobody", "people"),
        ("privacy", "unit", "record", "people"),
        ("mechanism", "sampler", "fast", "sampler"),
        ("mechanism", "arithmetic", "none", "sampler"),
        ("mechanism", "randomness", "a coin", "sampler"),
        ("mechanism", "randomness", "seed", "randomness"),
        ("mechanism", "scale", 2.0, "guarantee"),
        ("/", "reproducible", "not private", "randomness"),
    ],
)
def test_a_false_statement_is_found(release, group, name, value, check):
    node = release if group == "/" else release[group]
    node.attrs[name] = value
    found = verify(release)
    assert not found
    assert check in {one.name for one in found.checks if not one.passed}


def test_another_guarantee_that_follows_is_true(release):
    for name, value in {"guarantee": "ApproxDP", "epsilon": 1.0, "delta": 1e-9}.items():
        release["privacy"].attrs[name] = value
    text = str(ApproxDP(epsilon=1.0, delta=1e-9))
    release["privacy"].attrs["statement"] = release.attrs["guarantee"] = text
    assert verify(release)
