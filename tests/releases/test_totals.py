"""Which totals a release states and its output shows: public ones, or none."""

import json
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
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


def released(**options):
    return planned_sample(PURE, survey(), mechanism="geometric", **options)


def noisy(release):
    return release["mechanism/p"]["noisy_counts"].values


@pytest.mark.parametrize("options", [{"unit": "person"}, {"contribution": 2}, {"contribution": 1}], ids=str)
def test_noisy_counts_add_up_to_public_numbers_of_records(options):
    release = released(**options)
    assert release["mechanism/p"].attrs["mechanism"] == "ZeroSumGeometricMechanism"
    assert noisy(release).sum() == 12
    if "unit" in options:
        np.testing.assert_array_equal(noisy(release).sum(axis=1), [6, 6])
    assert dirdp.verify(release)
    assert "add up to the number of records" in " ".join(str(dirdp.report(release, full=True)).split())


@pytest.mark.parametrize("options", PRIVATE, ids=str)
def test_noise_does_not_add_up_where_the_number_is_private(options):
    assert len({noisy(released(**options)).sum() for _ in range(6)}) > 1
    # Nor is such noise compared with others, or taken by auto.
    for mechanism in ("geometric", "auto"):
        (part,) = dirdp.plan(PURE, survey(), mechanism=mechanism, **options).parts
        assert type(part.mechanism).__name__ == "GeometricMechanism"


@pytest.mark.parametrize("options", PRIVATE, ids=str)
def test_a_plan_that_would_publish_a_private_number_is_refused(options, tmp_path, text_of_facts):
    """Found by review before it was released: the sum of the noisy counts is then the number itself."""
    chosen = dirdp.plan(PURE, survey(), mechanism="geometric", **options)
    (part,) = chosen.parts
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


def test_huge_noise_is_rounded_and_still_adds_up():
    """Each noisy count is rounded to a double, so the sum of the doubles is another one."""
    assert dirdp.verify(dirdp.sample(dirdp.PureDP(epsilon=1e-18), survey(), mechanism="geometric", contribution=2))


def windows():
    """Two likelihoods see overlapping rows, and people's codes choose the row of a record."""
    codes = np.array([0, 1, 0, 1, 1, 0])
    with pm.Model() as built:
        p = pm.Dirichlet("p", np.ones((3, 2)))
        for k in (0, 1):
            pm.Categorical(f"x{k}", p=p[k : k + 2][codes], observed=codes[::-1])
    return built


def test_totals_of_rows_that_codes_decide_are_no_public_numbers():
    """Found by review: at most two records of a person in each row were taken for two, always."""
    options = {"mechanism": "geometric", "contribution": 2}
    chosen = dirdp.plan(PURE, windows(), **options)
    (part,) = chosen.parts
    assert part.totals == ()
    assert chosen.privacy_unit.public_axes("p") == ()
    assert part.mechanism.published_totals(np.ones((3, 2))) == [(pytest.approx([0, 1, 2]), 6)]
    sums = {tuple(noisy(dirdp.sample(chosen, windows())).sum(axis=1)) for _ in range(6)}
    assert len(sums) > 1
    assert {sum(one) for one in sums} == {12}


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
    dirdp.save(chosen, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert (again, again.digest) == (chosen, chosen.digest)
    release = dirdp.sample(again, share())
    dirdp.save(release, tmp_path / "release.json")
    verification = dirdp.verify(dirdp.load(tmp_path / "release.json"))
    assert verification
    assert any("1000 records in 'p'" in sentence for sentence in verification.assumptions)
    assert dirdp.estimate(release)


@pytest.mark.parametrize("number", [999, 1001, 10**9])
def test_curves_that_rest_on_another_number_of_records_are_refused(number, edited):
    """A smaller number of records, or a table of another size, is another guarantee."""
    release = dirdp.sample(APPROX, share())
    place = ("plan", "tables", 0, "parameters", "public_records")
    with pytest.raises(ReleaseError, match="differs from that of the plan"):
        dirdp.verify(edited(release, (place, number)))
    chosen = dirdp.plan(APPROX, share())
    (part,) = chosen.parts
    other = replace(part, mechanism=replace(part.mechanism, n_records=number))
    with pytest.raises(ArgumentError, match="differs from that of the plan"):
        replace(chosen, parts=(other,))
    # The same number in both places is the plan of a data set of this size.
    both = replace(chosen, parts=(replace(other, n_records=number),))
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="number of records"):
        dirdp.sample(both, share())


def test_curves_without_the_number_are_those_of_any_number(edited):
    release = dirdp.sample(APPROX, share())
    place = ("plan", "tables", 0, "parameters")
    forged = edited(release, (place, lambda facts: {name: facts[name] for name in facts if name != "public_records"}))
    verification = dirdp.verify(forged)
    # The draw keeps less of a guarantee for any number of records.
    assert not verification
    assert 1.1 < verification.recomputed.epsilon < 1.2


def test_a_person_with_at_most_so_many_records_leaves_the_number_private():
    with pm.Model(coords={"person": range(6), "time": range(2)}) as built:
        p = pm.Beta("p", 1, 1)
        pm.Bernoulli("x", p=p, observed=np.arange(12).reshape(6, 2) % 2, dims=("person", "time"))
    (part,) = dirdp.plan(APPROX, built, unit="person", contribution=3, n_records=12).parts
    assert part.mechanism.n_records is None
    (part,) = dirdp.plan(APPROX, built, unit="person").parts
    assert part.mechanism.n_records == 12
