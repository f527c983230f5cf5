"""Joint noise for a table in each of whose rows a person has records, through plans, releases and inference."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest
from scipy.stats import chisquare

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.joint_tables import expected_error
from pymc_dirdp.mechanisms import JointTableMechanism, ZeroSumGeometricMechanism, ZeroSumJointMechanism
from pymc_dirdp.privacy.contribution import Contribution

EACH = Contribution(1, ("each",))
PURE = dirdp.PureDP(epsilon=1.0)
SMALL = JointTableMechanism(np.ones((2, 2)), 1.3, contribution=EACH)


def survey(people, items=10, answers=2):
    observed = np.random.default_rng(0).integers(0, answers, (people, items))
    with pm.Model(coords={"item": range(items), "answer": range(answers), "person": range(people)}) as model:
        p = pm.Dirichlet("p", a=np.ones((items, answers)), dims=("item", "answer"))
        pm.Categorical("answers", p=p[None], observed=observed, dims=("person", "item"))
    return model


@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("rows", [2, 3])
def test_no_neighbour_of_a_small_data_set_loses_more(rows, records):
    """Brute force: all answers of one person change in all rows; the pure epsilon is attained and never exceeded."""
    mechanism = JointTableMechanism(np.ones((rows, 2)), 0.9, contribution=Contribution(records, ("each",)))
    counts = np.full((rows, 2), 3.0)
    outputs = [counts + np.array([[z, -z] for z in zs]) for zs in itertools.product(range(-4, 5), repeat=rows)]
    largest = 0.0
    for moves in itertools.product(range(-records, records + 1), repeat=rows):
        other = counts + np.array([[move, -move] for move in moves])
        loss = mechanism.log_likelihood(outputs, counts) - mechanism.log_likelihood(outputs, other)
        ratio = mechanism.log_likelihood_ratio(np.array(outputs), counts, other)
        np.testing.assert_allclose(ratio, loss, atol=1e-12)
        largest = max(largest, float(np.abs(loss).max()))
    assert mechanism.pure_epsilon * (1 - 1e-9) < largest <= mechanism.pure_epsilon
    forgot = JointTableMechanism(np.ones((rows, 2)), 0.9 * 2, contribution=EACH)
    assert largest > forgot.pure_epsilon


def test_the_curves_are_those_of_its_rows_together():
    together = ZeroSumJointMechanism([3] * 4, 2.0, records=2)
    mechanism = JointTableMechanism(np.ones((4, 3)), 2.0, contribution=Contribution(2, ("each",)))
    assert mechanism.pure_epsilon == together.pure_epsilon
    for epsilon in (0.0, 0.1, 0.4):
        assert mechanism.delta(epsilon) == together.delta(epsilon)
    assert mechanism.renyi(3.0) == together.renyi(3.0)
    assert mechanism.with_few_cells().delta(0.1) == together.delta(0.1)
    few = JointTableMechanism.for_guarantee(PURE, prior=np.ones((10, 2)), contribution=EACH)
    apart = ZeroSumGeometricMechanism.for_guarantee(PURE, prior=np.ones((10, 2)), contribution=EACH)
    assert few.noise_sd**2 == pytest.approx(43.92, abs=0.01)
    assert apart.noise_sd**2 == pytest.approx(199.8, abs=0.1)
    assert few.satisfies(PURE)


@pytest.mark.parametrize("sampler", ["exact", "fast"])
def test_what_is_drawn_has_the_stated_distribution(sampler):
    """Chi-square against the sum over all noise; independent noise of the same variance is refused."""
    counts = np.array([[5.0, 7.0], [9.0, 1.0]])
    seen = SMALL.releases(counts, 3000, sampler=sampler, random_seed=3)
    assert np.all(seen.sum(axis=-1) == counts.sum(axis=-1))
    radius = np.abs(seen[:, :, 0] - counts[:, 0]).max(axis=1)
    # There are 8 r tables of radius r, and 1 of 0.
    mass = np.array([1.0, *(8 * r * math.exp(-r / SMALL.scale) for r in range(1, 200))])
    mass /= mass.sum()
    last = 8
    expected = np.append(mass[:last], mass[last:].sum()) * len(radius)
    found = np.bincount(np.minimum(radius, last).astype(int), minlength=last + 1)
    assert chisquare(found, expected).pvalue > 1e-6
    rng = np.random.default_rng(1)
    alone = ZeroSumGeometricMechanism(np.ones((2, 2)), 2 * SMALL.scale, contribution=EACH)
    other = np.abs(alone.noise_for((3000, 2, 2), rng)[:, :, 0]).max(axis=1)
    assert chisquare(np.bincount(np.minimum(other, last).astype(int), minlength=last + 1), expected).pvalue < 1e-6


def test_a_release_is_read_with_the_radius_that_the_rows_share(tmp_path):
    """Means against a sum over all data sets; two rows of 6 people."""
    model = survey(6, items=2)
    release = dirdp.sample(PURE, model, mechanism="joint", unit="person")
    (part,) = dirdp.plan(PURE, model, mechanism="joint", unit="person").parts
    assert part.mechanism.kind == "joint"
    noisy = release["mechanism/p"]["noisy_counts"].values
    tables = np.array([[[a, 6 - a], [b, 6 - b]] for a in range(7) for b in range(7)], dtype=float)
    # Flat priors give every count of a row the same probability.
    weights = np.exp(part.mechanism.log_likelihood(noisy, tables))
    means = np.einsum("i,ijk->jk", weights / weights.sum(), (tables + 1) / 8)
    estimate = dirdp.estimate(release)
    np.testing.assert_allclose(np.ravel(estimate.tables["p"].share_means), means.ravel(), rtol=1e-9)
    drawn = dirdp.analyse(release, draws=4000)["posterior"]["p"].values.mean(axis=(0, 1))
    np.testing.assert_allclose(drawn, means, atol=0.03)
    dirdp.save(release, tmp_path / "release.json")
    back = dirdp.load(tmp_path / "release.json")
    assert dirdp.verify(back)
    assert "Joint zero-sum noise" in str(dirdp.report(back))
    edited = (tmp_path / "release.json").read_text().replace("JointTableMechanism", "DiscreteGaussianMechanism")
    (tmp_path / "edited.json").write_text(edited)
    with pytest.raises(dirdp.ReleaseError):
        dirdp.load(tmp_path / "edited.json")


def test_a_draw_of_the_release_comes_from_the_same_posterior():
    model = survey(30, items=3)
    release = dirdp.sample(PURE, model, mechanism="joint", unit="person", draws=4000)
    means = np.reshape(dirdp.estimate(release).tables["p"].share_means, (3, 2))
    np.testing.assert_allclose(release["posterior"]["p"].values.mean(axis=(0, 1)), means, atol=0.03)


def test_auto_takes_it_where_it_wins_and_gaussian_noise_for_zero_concentrated_privacy():
    model = survey(1000)
    for target in (PURE, dirdp.ApproxDP(epsilon=1.0, delta=1e-6)):
        plan = dirdp.plan(target, model, mechanism="auto", unit="person")
        (part,) = plan.parts
        assert part.mechanism.kind == part.choice.best == "joint"
        assert plan.composition.satisfies(target)
        # JOINT, section A: 3.4 times less for the frequencies; here what 1000 records leave open is in both.
        assert min(kl for kind, kl in part.choice.expected_kl if kind != "joint") > 1.3 * part.choice.expected_kl[0][1]
    assert dirdp.plan(dirdp.ZeroCDP(rho=0.5), model, mechanism="auto", unit="person").parts[0].choice.best == "gaussian"


def test_the_expected_error_is_that_of_the_figures():
    """JOINT, section A: the divergence of the frequencies from the means is .00024, and 1000 records leave .0005."""
    mechanism = JointTableMechanism.for_guarantee(PURE, prior=np.ones((10, 2)), contribution=EACH)
    found = expected_error(mechanism, np.ones((10, 2)), 10_000)
    assert 0.0005 + 0.00018 < found.kl < 0.0005 + 0.0003
    assert expected_error(mechanism, np.ones((10, 2)), 0) is None


@pytest.mark.parametrize("shape", [(3,), (2, 3, 2)])
def test_other_tables_are_refused_with_a_way_out(shape):
    with pytest.raises(ArgumentError, match="mechanism='geometric'"):
        JointTableMechanism(np.ones(shape), 1.0)
    with pytest.raises(ArgumentError, match="mechanism='geometric'"):
        JointTableMechanism(np.ones((3, 2)), 1.0, contribution=2)
    with pytest.raises(ArgumentError, match="private"):
        JointTableMechanism(np.ones((3, 2)), 1.0, contribution=EACH, adjacency="add-remove")


def test_what_is_no_product_says_so():
    noisy = np.array([[5.0, 7.0], [9.0, 1.0]])
    for call in (
        lambda: SMALL.log_noise(noisy),
        lambda: SMALL.row_likelihoods(noisy),
        lambda: SMALL.cell_log_likelihood(noisy, noisy),
        lambda: SMALL.output_laws(noisy, noisy),
    ):
        with pytest.raises(ArgumentError, match="joint_rows"):
            call()
    assert SMALL.cell_noise is None
    assert SMALL.laplace_scale is None


def test_one_row_is_zero_sum_geometric_noise():
    one, known = JointTableMechanism([[1, 1, 1]], 1.5, contribution=EACH), ZeroSumGeometricMechanism(np.ones(3), 3.0)
    assert one.noise_sd == pytest.approx(known.noise_sd, rel=1e-9)
    assert one.delta(0.2) == pytest.approx(known.delta(0.2), rel=1e-9)
