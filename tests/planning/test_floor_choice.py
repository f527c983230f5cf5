"""Calibration of the floored mechanism."""

import math
from dataclasses import replace

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.floored import FlooredDirichletMechanism
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.utility.simulated import predicted_data, simulated_draw_kl

TARGETS = [
    dirdp.ApproxDP(epsilon=1.0, delta=1e-6),
    dirdp.ZeroCDP(rho=0.05),
    *(
        pytest.param(target, marks=pytest.mark.thorough)
        for target in (
            dirdp.ApproxDP(epsilon=0.05, delta=1e-9),
            dirdp.RenyiDP(order=8.0, epsilon=0.3),
            dirdp.TruncatedCDP(rho=0.05, omega=10.0),
        )
    ),
]


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_promise_is_kept_and_a_larger_r_does_not_keep_it(target, adjacency):
    mechanism = dirdp.calibrate_floored(target, prior=[1, 1, 1], n_records=500, adjacency=adjacency)
    assert mechanism.satisfies(target)
    larger = FlooredDirichletMechanism(mechanism.alpha, mechanism.r * 1.02, mechanism.floor, adjacency=adjacency)
    assert not larger.satisfies(target)
    assert mechanism == dirdp.calibrate_floored(target, prior=[1, 1, 1], n_records=500, adjacency=adjacency)


@pytest.mark.parametrize(
    ("prior", "n_records", "epsilon", "expected"),
    [(np.ones(6), 1283, 1.0, 0.00340), (np.ones(2), 100, 1.0, 0.01210), (np.full(6, 0.2), 1283, 3.0, 0.00259)],
    ids=["flat", "binary", "sparse"],
)
def test_a_floored_draw_is_closer_to_the_frequencies_than_a_dirichlet_draw(prior, n_records, epsilon, expected):
    """The expected divergences were computed with cumulants of sums of intensities, in the design of the mechanism."""
    target = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    data = predicted_data(prior, n_records, n_cells=20_000)
    kl = simulated_draw_kl(dirdp.calibrate_floored(target, prior=prior, n_records=n_records), data)
    assert kl == pytest.approx(expected, rel=0.1)
    drawn = dirdp.calibrate(target, prior=prior, n_records=n_records, objective="estimate")
    assert 2.0 < simulated_draw_kl(drawn, data) / kl < 5.0


def test_a_shift_brings_a_sparse_table_closer():
    target, prior = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), np.full(50, 0.2)
    chosen = dirdp.calibrate_floored(target, prior=prior, n_records=2000)
    data = predicted_data(prior, 2000, n_cells=50_000)
    least, without = (simulated_draw_kl(replace(chosen, shift=c), data) for c in (chosen.shift, 0.0))
    assert 0.5 < chosen.shift < 1
    assert without > 1.3 * least
    # The design found .05444 for the best floor and .04741 with a shift.
    assert least == pytest.approx(0.04741, rel=0.1)


def test_other_floors_are_no_better():
    target, prior = dirdp.ZeroCDP(rho=0.05), np.ones(5)
    chosen = dirdp.calibrate_floored(target, prior=prior, n_records=800)
    data = predicted_data(prior, 800, n_cells=50_000)
    least = simulated_draw_kl(chosen, data)
    for times in (1 / 8, 8):
        floor = chosen.floor * times
        # Under concentrated privacy r follows in closed form from the curve at another r.
        one = FlooredDirichletMechanism(chosen.alpha, 1.0, floor).rho(math.inf)
        for shift in (0.0, chosen.shift, 0.95):
            other = FlooredDirichletMechanism(chosen.alpha, math.sqrt(0.05 / one), floor, shift=shift)
            assert simulated_draw_kl(other, data) > 1.1 * least


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[1]], ids=str)
def test_a_public_number_of_records_lets_a_record_count_more(target):
    options = {"prior": [1, 1], "n_records": 400}
    known, unknown = (dirdp.calibrate_floored(target, **options, public_totals=public) for public in (True, False))
    assert known.satisfies(target)
    assert (known.n_records, unknown.n_records) == (400, None)
    assert not replace(known, n_records=None).satisfies(target)
    data = predicted_data(np.ones(2), 400, n_cells=20_000)
    assert simulated_draw_kl(known, data) < 0.85 * simulated_draw_kl(unknown, data)
    # Elsewhere it changes nothing.
    wide = dirdp.calibrate_floored(target, prior=[1, 1, 1], n_records=400, public_totals=True)
    assert wide.n_records is None


def test_public_numbers_of_rows_let_a_record_count_more():
    """Six departments and their numbers of applicants."""
    target, numbers = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), [933, 585, 918, 792, 584, 714]
    options = {"prior": np.ones((6, 2)), "n_records": numbers}
    known, unknown = (dirdp.calibrate_floored(target, **options, public_totals=public) for public in (True, False))
    assert known.satisfies(target)
    assert (known.n_records, unknown.n_records) == (tuple(numbers), None)
    assert not replace(known, n_records=None).satisfies(target)
    assert not replace(known, r=known.r * 1.02).satisfies(target)
    data = predicted_data(np.ones((6, 2)), sum(numbers), n_cells=20_000)
    assert simulated_draw_kl(known, data) < 0.75 * simulated_draw_kl(unknown, data)
    # Where only the total is public a record may change rows.
    total = dirdp.calibrate_floored(target, prior=np.ones((6, 2)), n_records=sum(numbers), public_totals=True)
    assert total == unknown
    with pytest.raises(ArgumentError, match="6 rows"):
        dirdp.calibrate_floored(target, prior=np.ones((6, 2)), n_records=[1, 2], public_totals=True)


@pytest.mark.thorough
@pytest.mark.parametrize("contribution", [3, Contribution(1, ("each",))], ids=["three records", "survey"])
def test_a_person_with_several_records_is_protected(contribution):
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    prior = np.ones((2, 3))
    one = dirdp.calibrate_floored(target, prior=prior, n_records=600)
    several = dirdp.calibrate_floored(target, prior=prior, n_records=600, contribution=contribution)
    assert several.satisfies(target)
    assert several.r < one.r or several.floor > one.floor


@pytest.mark.parametrize(
    ("d", "n_records", "prior", "epsilon", "expected"),
    [
        (2, 100, 1.0, 1.0, 0.0305),
        (6, 1283, 1.0, 1.0, 0.0162),
        (50, 2000, 1.0, 1.0, 0.097),
        (6, 1283, 0.2, 3.0, 0.0088),
        (50, 2000, 0.2, 3.0, 0.0516),
    ],
)
def test_a_pure_promise_takes_a_ceiling(d, n_records, prior, epsilon, expected):
    """The expected divergences were computed with cumulants of sums of intensities, in the design of the mechanism."""
    target = dirdp.PureDP(epsilon=epsilon)
    chosen = dirdp.calibrate_floored(target, prior=np.full(d, prior), n_records=n_records)
    assert chosen.satisfies(target)
    assert not replace(chosen, r=chosen.r * (1 + 1e-6)).satisfies(target)
    assert not replace(chosen, ceiling=chosen.ceiling * 1.001).satisfies(target)
    # A search over three numbers may find more than the design did, and hardly less.
    data = predicted_data(np.full(d, prior), n_records, n_cells=50_000)
    assert 0.75 * expected < simulated_draw_kl(chosen, data) < 1.05 * expected


@pytest.mark.thorough
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("contribution", [2, Contribution(1, ("each",))], ids=["two records", "survey"])
@pytest.mark.parametrize("epsilon", [0.01, 20.0])
def test_pure_promises_of_people_with_several_records(adjacency, contribution, epsilon):
    options = {"prior": np.ones((2, 3)), "n_records": 40, "adjacency": adjacency, "contribution": contribution}
    chosen = dirdp.calibrate_floored(dirdp.PureDP(epsilon=epsilon), **options)
    assert 0.999 * epsilon < chosen.pure_epsilon <= epsilon
    assert chosen.ceiling > chosen.floor


def test_what_is_missing_or_unattainable_is_said():
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    with pytest.raises(ArgumentError, match="n_records="):
        dirdp.calibrate_floored(target, prior=[1, 1])
    with pytest.raises(ArgumentError, match="needs a record"):
        dirdp.calibrate_floored(target, prior=np.ones((3, 2)), n_records=2)
    with pytest.raises(UnattainableError, match="State another guarantee"):
        dirdp.calibrate_floored(dirdp.ApproxDP(epsilon=1e-12, delta=1e-30), prior=[1, 1], n_records=100)
    # The largest concentration keeps what allows for more.
    assert dirdp.calibrate_floored(dirdp.ZeroCDP(rho=1e6), prior=[1, 1], n_records=100).r == 100


def test_the_comparison_has_a_floored_draw():
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    frame = dirdp.compare(target, prior=np.ones(4), n_records=592, simulations=200).frame()
    drawn = frame.loc["Floored draw"]
    assert drawn["kl_draw"] == drawn["kl_estimate"] < frame.loc["Dirichlet, optimal for the estimate", "kl_draw"]
    assert math.isnan(drawn["kl_posterior"])
