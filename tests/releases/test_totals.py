"""What noisy counts add up to: the public number of records, or nothing that anybody may know."""

import dataclasses

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.privacy.composition import Composition

PURE = dirdp.PureDP(epsilon=1.0)


def model():
    with pm.Model(coords={"person": range(6), "item": ["a", "b"], "answer": range(3)}) as built:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=np.arange(12).reshape(6, 2) % 3, dims=("person", "item"))
    return built


def released(**options):
    return dirdp.sample(PURE, model(), mechanism="geometric", **options)


def kind(release):
    return release["mechanism/p"].attrs["mechanism"]


@pytest.mark.parametrize("options", [{"unit": "person"}, {"contribution": 2}, {"contribution": 1}], ids=str)
def test_noisy_counts_add_up_to_a_public_number_of_records(options):
    release = released(**options)
    assert kind(release) == "ZeroSumGeometricMechanism"
    noisy = release["mechanism/p"]["noisy_counts"].values
    assert noisy.sum() == 12
    if "unit" in options:
        np.testing.assert_array_equal(noisy.sum(axis=1), [6, 6])
    assert dirdp.verify(release)
    assert "add up to the number of records" in " ".join(str(dirdp.report(release)).split())


@pytest.mark.parametrize(
    "options",
    [
        {"adjacency": "add-remove", "contribution": 2, "n_records": 12},
        {"unit": "person", "max_records_per_person": 3, "n_records": 12},
    ],
    ids=str,
)
def test_noise_does_not_add_up_where_the_number_is_private(options):
    sums = {released(**options)["mechanism/p"]["noisy_counts"].values.sum() for _ in range(6)}
    assert len(sums) > 1
    assert kind(released(**options)) == "GeometricMechanism"
    # Nor is it compared with such noise, or taken by auto.
    chosen = dirdp.plan(PURE, model(), mechanism="auto", **options)
    assert type(chosen.parts[0].mechanism).__name__ == "GeometricMechanism"


def test_counts_that_add_up_to_something_else_are_found():
    release = released(contribution=2)
    release["mechanism/p"]["noisy_counts"].values[0, 0] += 1
    verification = dirdp.verify(release)
    assert not verification
    (failed,) = [check for check in verification.checks if not check.passed]
    assert failed.name == "totals"
    assert "do not add up" in failed.sentence
    with pytest.raises(ReleaseError, match="add up"):
        dirdp.estimate(release)


def test_a_block_with_fewer_than_no_records_is_found():
    release = released(unit="person")
    release["mechanism/p"]["noisy_counts"].values[:, 0] += [-20, 20]
    (failed,) = [check for check in dirdp.verify(release).checks if not check.passed]
    assert "negative" in failed.sentence


def test_a_file_or_a_plan_that_would_publish_a_private_number_is_refused():
    private = {"unit": "person", "max_records_per_person": 3, "n_records": 12}
    release = released(**private)
    release["mechanism/p"].attrs["mechanism"] = "ZeroSumGeometricMechanism"
    release["mechanism/p"]["noise_sd"].values[...] = dirdp.mechanisms.ZeroSumGeometricMechanism(
        np.ones((2, 3)), float(release["mechanism/p"]["noise_parameter"])
    ).noise_sd
    noisy = release["mechanism/p"]["noisy_counts"].values
    noisy[0, 0] += 12 - noisy.sum()
    (failed,) = [check for check in dirdp.verify(release).checks if check.name == "totals"]
    assert not failed.passed
    assert "private number of records" in failed.sentence
    chosen = dirdp.plan(PURE, model(), mechanism="geometric", **private)
    (part,) = chosen.parts
    other = dirdp.mechanisms.ZeroSumGeometricMechanism(
        part.mechanism.prior, part.mechanism.scale, contribution=part.mechanism.contribution
    )
    edited = dataclasses.replace(chosen, parts=(dataclasses.replace(part, mechanism=other),))
    with pytest.raises(ArgumentError, match="private number of records"):
        dirdp.sample(edited, model())


def test_huge_noise_is_rounded_and_still_adds_up():
    """Each noisy count is rounded to a double, so the sum of the doubles is another one."""
    release = dirdp.sample(dirdp.PureDP(epsilon=1e-18), model(), mechanism="geometric", contribution=2)
    assert dirdp.verify(release)


APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def share(n=1000):
    with pm.Model() as built:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("x", n=n, p=p, observed=300)
    return built


def test_a_share_of_a_public_number_of_records_loses_less(tmp_path):
    chosen = dirdp.plan(APPROX, share())
    (part,) = chosen.parts
    assert part.mechanism.n_records == part.n_records == 1000
    # Found before the curve of a public number of records: r = 0.2784.
    assert part.mechanism.r == pytest.approx(0.3329, abs=1e-4)
    chosen.to_json(tmp_path / "plan.json")
    again = dirdp.Plan.from_json(tmp_path / "plan.json")
    assert again == chosen
    assert again.digest == chosen.digest
    release = dirdp.sample(again, share())
    assert release["mechanism/p"].attrs["public_records"] == 1000
    release.to_netcdf(tmp_path / "release.nc")
    verification = dirdp.verify(xr.open_datatree(tmp_path / "release.nc"))
    assert verification
    assert any("1000 records in 'p'" in sentence for sentence in verification.believed)
    assert dirdp.estimate(release)


@pytest.mark.parametrize(
    "options",
    [
        {"adjacency": "add-remove", "n_records": 1000},
        {"contribution": 3, "adjacency": "add-remove", "n_records": 1000},
    ],
    ids=str,
)
def test_a_private_number_of_records_is_no_part_of_a_curve(options):
    (part,) = dirdp.plan(APPROX, share(), **options).parts
    assert part.mechanism.n_records is None


def test_a_person_with_at_most_so_many_records_leaves_the_number_private():
    with pm.Model(coords={"person": range(6), "time": range(2)}) as built:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("x", p=p, observed=np.arange(12).reshape(6, 2) % 2, dims=("person", "time"))
    (part,) = dirdp.plan(APPROX, built, unit="person", max_records_per_person=3, n_records=12).parts
    assert part.mechanism.n_records is None
    (part,) = dirdp.plan(APPROX, built, unit="person").parts
    assert part.mechanism.n_records == 12


@pytest.mark.parametrize("number", [999, 1001, 10**9])
def test_curves_that_rest_on_another_number_of_records_do_not_verify(number):
    release = dirdp.sample(APPROX, share())
    release["mechanism/p"].attrs["public_records"] = number
    verification = dirdp.verify(release)
    assert "totals" in [check.name for check in verification.checks if not check.passed]
    # The same number in both places is another promise: that of a data set of this size.
    chosen = dirdp.plan(APPROX, share())
    (part,) = chosen.parts
    other = dataclasses.replace(part, mechanism=dataclasses.replace(part.mechanism, n_records=number))
    with pytest.raises(ArgumentError, match="rest on a number of records"):
        dirdp.sample(dataclasses.replace(chosen, parts=(other,)), share())
    both = dataclasses.replace(chosen, parts=(dataclasses.replace(other, n_records=number),))
    with pytest.raises(dirdp.UnsupportedModelError, match="number of records"):
        dirdp.sample(both, share())


def test_curves_without_the_number_are_those_of_any_number():
    release = dirdp.sample(APPROX, share())
    del release["mechanism/p"].attrs["public_records"]
    verification = dirdp.verify(release)
    # The draw keeps less of a promise for any number of records.
    assert not verification
    assert 1.1 < verification.kept.epsilon < 1.2


def test_several_draws_of_an_uneven_table_lose_in_one_direction():
    with pm.Model() as built:
        p = pm.Dirichlet("p", a=[0.5, 50.0, 50.0])
        pm.Multinomial("x", n=50, p=p, observed=[3, 20, 27])
    with pytest.warns(dirdp.ManyDrawsWarning):
        release = dirdp.sample(APPROX, built, strategy="temper", draws=30)
    assert dirdp.verify(release)
    mechanism = dirdp.plan(APPROX, built, strategy="temper").parts[0].mechanism
    alone = dataclasses.replace(mechanism, r=float(release["mechanism/p"]["r"]))
    # With the larger curve 30 times this r would not keep the promise.
    assert Composition(((alone, 30),)).epsilon(1e-6) > 1.02
    release["privacy"].attrs["draws"] = 60
    with pytest.raises(ReleaseError, match="each draw loses"):
        dirdp.verify(release)
