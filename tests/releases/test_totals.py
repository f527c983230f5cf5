"""Which totals a release states and its output shows: public ones, or none."""

import json
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError, UnsupportedModelError
from pymc_dirdp.mechanisms import ZeroSumGeometricMechanism
from tests.planned import planned_sample

PURE, APPROX = dirdp.PureDP(epsilon=1.0), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
PRIVATE = [
    {"adjacency": "add-remove", "contribution": 2, "n_records": 12},
    {"unit": "person", "contribution": 3, "n_records": 12},
]


def survey():
    """Six people answer two items each."""
    with pm.Model(coords={"person": range(6), "item": ["a", "b"], "answer": range(3)}) as built:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=np.arange(12).reshape(6, 2) % 3, dims=("person", "item"))
    return built


def noisy(release):
    return release["mechanism/p"]["noisy_counts"].values


@pytest.mark.parametrize("options", [{"unit": "person"}, {"contribution": 2}, {"contribution": 1}], ids=str)
def test_noisy_counts_add_up_to_public_numbers_of_records(options):
    release = planned_sample(PURE, survey(), mechanism="geometric", **options)
    assert release["mechanism/p"].attrs["mechanism"] == "ZeroSumGeometricMechanism"
    assert noisy(release).sum() == 12
    if "unit" in options:
        np.testing.assert_array_equal(noisy(release).sum(axis=1), [6, 6])
    assert dirdp.verify(release)
    assert "add up to the number of records" in " ".join(str(dirdp.report(release, full=True)).split())
    # Huge noise is rounded, count by count, so the sum of the doubles is another one.
    assert dirdp.verify(planned_sample(dirdp.PureDP(epsilon=1e-18), survey(), mechanism="geometric", **options))


@pytest.mark.parametrize("options", PRIVATE, ids=str)
def test_noise_does_not_add_up_where_the_number_is_private(options, tmp_path, text_of_facts):
    """Found by review before it was released: the sum of the noisy counts is then the number itself."""
    chosen = dirdp.plan(PURE, survey(), mechanism="geometric", **options)
    assert len({noisy(dirdp.sample(chosen, survey())).sum() for _ in range(6)}) > 1
    (part,) = chosen.parts
    # Nor is such noise compared with others, or taken by auto.
    for plan in (chosen, dirdp.plan(PURE, survey(), mechanism="auto", **options)):
        assert type(plan.parts[0].mechanism).__name__ == "GeometricMechanism"
    adds = part.mechanism.contribution
    if options.get("adjacency") == "add-remove":
        with pytest.raises(ArgumentError, match="replace-one"):
            ZeroSumGeometricMechanism(part.mechanism.prior, 100.0, adjacency="add-remove", contribution=adds)
        return
    other = ZeroSumGeometricMechanism(part.mechanism.prior, 100.0, contribution=adds)
    with pytest.raises(ArgumentError, match="number of records, which is private"):
        replace(chosen, parts=(replace(part, mechanism=other),))
    facts = json.loads(json.dumps(chosen.facts))
    facts["tables"][0]["mechanism"] = "ZeroSumGeometricMechanism"
    (tmp_path / "plan.json").write_text(text_of_facts(facts), encoding="utf-8")
    with pytest.raises(ArgumentError, match="number of records, which is private"):
        dirdp.load(tmp_path / "plan.json")


def test_totals_of_rows_that_codes_decide_are_no_public_numbers():
    """Found by review: at most two records of a person in each row were taken for two, always.

    Two likelihoods see overlapping rows, and people's codes choose the row of a record.
    """
    codes = np.array([0, 1, 0, 1, 1, 0])
    with pm.Model() as windows:
        p = pm.Dirichlet("p", np.ones((3, 2)))
        for k in (0, 1):
            pm.Categorical(f"x{k}", p=p[k : k + 2][codes], observed=codes[::-1])
    chosen = dirdp.plan(PURE, windows, mechanism="geometric", contribution=2)
    (part,) = chosen.parts
    assert part.totals == ()
    assert chosen.privacy_unit.public_axes("p") == ()
    assert part.mechanism.published_totals(np.ones((3, 2))) == [(pytest.approx([0, 1, 2]), 6)]
    sums = {tuple(noisy(dirdp.sample(chosen, windows)).sum(axis=1)) for _ in range(6)}
    assert len(sums) > 1
    assert {sum(one) for one in sums} == {12}


# A share of a public number of records loses less.


@pytest.fixture(scope="module")
def share():
    with pm.Model() as built:
        pm.Binomial("x", n=1000, p=pm.Beta("p", 1, 1), observed=300)
    return built


@pytest.fixture(scope="module")
def chosen(share):
    return dirdp.plan(APPROX, share)


def test_a_share_of_a_public_number_of_records_loses_less(share, chosen, tmp_path):
    (part,) = chosen.parts
    assert part.mechanism.n_records == part.n_records == 1000
    # Found before the curve of a public number of records: r = 0.2784.
    assert part.mechanism.r == pytest.approx(0.3329, abs=1e-4)
    dirdp.save(chosen, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert (again, again.digest) == (chosen, chosen.digest)
    dirdp.save(dirdp.sample(again, share), tmp_path / "release.json")
    verification = dirdp.verify(tmp_path / "release.json")
    assert verification
    assert any("1000 records in 'p'" in sentence for sentence in verification.assumptions)
    assert dirdp.estimate(tmp_path / "release.json")


@pytest.mark.parametrize("number", [999, 1001, 10**9])
def test_curves_that_rest_on_another_number_of_records_are_refused(share, chosen, number, edited):
    """A smaller number of records, or a table of another size, is another guarantee."""
    place = ("plan", "tables", 0, "parameters", "public_records")
    with pytest.raises(ReleaseError, match="differs from that of the plan"):
        dirdp.verify(edited(dirdp.sample(chosen, share), (place, number)))
    (part,) = chosen.parts
    other = replace(part, mechanism=replace(part.mechanism, n_records=number))
    with pytest.raises(ArgumentError, match="differs from that of the plan"):
        replace(chosen, parts=(other,))
    # The same number in both places is the plan of a data set of this size.
    both = replace(chosen, parts=(replace(other, n_records=number),))
    with pytest.raises(UnsupportedModelError, match="number of records"):
        dirdp.sample(both, share)


def test_curves_without_the_number_are_those_of_any_number(share, chosen, edited):
    place = ("plan", "tables", 0, "parameters")
    without = (place, lambda facts: {name: facts[name] for name in facts if name != "public_records"})
    verification = dirdp.verify(edited(dirdp.sample(chosen, share), without))
    # The draw keeps less of a guarantee for any number of records.
    assert not verification
    assert 1.1 < verification.recomputed.epsilon < 1.2


def test_a_person_with_at_most_so_many_records_leaves_the_number_private():
    with pm.Model(coords={"person": range(6), "time": range(2)}) as built:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("x", p=p, observed=np.arange(12).reshape(6, 2) % 2, dims=("person", "time"))
    for options, number in (({"contribution": 3, "n_records": 12}, None), ({}, 12)):
        (part,) = dirdp.plan(APPROX, built, unit="person", **options).parts
        assert part.mechanism.n_records == number
