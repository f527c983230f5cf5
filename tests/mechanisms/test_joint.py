"""Joint noise of a table and of several: brute force over all neighbours, figures, likelihoods, audits and plans."""

import itertools
import json
import math

import numpy as np
import pymc as pm
import pytest
from scipy.stats import chisquare, dirichlet_multinomial

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.drawing import SecretCounts
from pymc_dirdp.texts.grammar import digest, to_lines
from tests.mechanisms.test_contract import changes_of_block, delta_of, lists, noise_losses, renyi_of
from tests.planned import planned_sample

EPSILONS, ORDERS = (0.0, 0.2, 0.7), (1.01, 2.0, 9.0)
EACH, PURE = Contribution(1, ("each",)), dirdp.PureDP(epsilon=1.0)

# With whether records of a person are replaced (2) or added.
CASES = {
    "different tables": (JointNoise([2, 3], 0.5, zero_sum=True), 1),
    "two of three cells": (JointNoise([3, 2], 0.3, 2, zero_sum=True), 1),
    "unequal records": (JointNoise([2, 2], 0.5, (1, 2), zero_sum=True), 1),
    "added": (JointNoise([2, 2], 0.5), 1),
    "three added": (JointNoise([1, 2, 1], 0.4), 1),
    "two records replaced": (JointNoise([2, 1], 0.3, 2), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_by_brute_force_over_all_neighbours(name):
    (noise, times), worst = CASES[name], 0.0
    options = {"replaced": times == 2 or noise.zero_sum, "equal": noise.zero_sum}
    every = [changes_of_block(d, m, **options) for d, m in zip(noise.cells, noise.records, strict=True)]
    for change in itertools.product(*every):
        # The other order of two neighbours has the same losses, because the noise has the same distribution mirrored.
        losses = noise_losses(noise, np.concatenate(change))
        deltas = [delta_of(losses, epsilon) for epsilon in EPSILONS]
        worst = np.maximum(worst, [np.abs(losses[1]).max(), *deltas, *(renyi_of(losses, order) for order in ORDERS)])
    curves = noise.curves(len(noise.cells), 1, times)
    stated = np.array([curves.pure_epsilon, *map(curves.delta, EPSILONS), *map(curves.renyi, ORDERS)])
    # The pure epsilon is attained and never exceeded.
    assert stated[0] == pytest.approx(worst[0], rel=1e-11)
    assert stated[0] == pytest.approx(times / noise.scale, rel=1e-11)
    assert np.all(worst * (1 - 1e-9) <= stated)
    if set(noise.records) == {1} and times == 1:
        assert np.all(stated <= worst * (1 + 1e-8))
    # Randomised response is never below.
    assert curves.delta(0.0) <= math.tanh(curves.pure_epsilon / 2) * (1 + 1e-12)


# JOINT, section A, by numbers of tables and their cells: the variance of a cell at epsilon 1, and that of independent
# noise over it for small epsilon.
VARIANCES = {(2, 2): 3.903, (10, 2): 43.92, (32, 2): 373.9, (10, 4): 208.2}
RATIOS = {(2, 2): 2.0, (20, 2): 5.19, (20, 6): 1.63}


def test_variances_and_errors_are_those_of_the_figures():
    for (number, cells), variance in VARIANCES.items():
        prior = np.ones((number, cells))
        mechanism = ZeroSumJointTableMechanism.for_guarantee(PURE, prior=prior, contribution=EACH)
        assert mechanism.scale == pytest.approx(1, rel=1e-9)
        assert mechanism.noise_sd**2 == pytest.approx(variance, rel=3e-4)
    for (number, cells), ratio in RATIOS.items():
        # Each of K tables has a K-th of the budget, and loses two over its scale.
        apart = ZeroSumGeometricMechanism(np.ones(cells), 200.0 * number).noise_sd
        assert (apart / JointNoise([cells] * number, 100.0, zero_sum=True).sd) ** 2 == pytest.approx(ratio, abs=6e-3)
    # The divergence of the frequencies from the means is .00024, and 1000 records leave .0005. One table is simulated.
    mechanism = ZeroSumJointTableMechanism(np.ones((10, 2)), 1.0, contribution=EACH)
    found = estimate_error(mechanism, np.ones((10, 2)), 10_000)
    assert 0.0005 + 0.00017 < found.kl < 0.0005 + 0.0003
    item = ZeroSumJointTableMechanism([1, 1], mechanism.scale, noise_shared_with=[(2, 1, 9)])
    assert estimate_error(item, np.ones(2), 1000).kl == pytest.approx(found.kl, rel=0.03)
    # One block is zero-sum geometric noise.
    alone, known = ZeroSumJointTableMechanism(np.ones((4, 4)), 1.0), ZeroSumGeometricMechanism(np.ones((4, 4)), 2.0)
    errors = [estimate_error(one, np.ones((4, 4)), 592).kl for one in (alone, known)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


def test_one_table_is_zero_sum_geometric_noise():
    one, known = ZeroSumJointTableMechanism(np.ones(4), 1.5), ZeroSumGeometricMechanism(np.ones(4), 3.0)
    assert one.noise_sd == pytest.approx(known.noise_sd, rel=1e-10)
    for d in (2, 4):
        free = ZeroSumGeometricMechanism(np.ones(d), 3.0).noise.free_variance
        assert ZeroSumJointTableMechanism(np.ones(d), 1.5).noise.free_variance == pytest.approx(free, rel=1e-10)
    z = np.array([[3, -1, -2, 0], [1, 1, 0, -2]])
    np.testing.assert_allclose(one.log_likelihood(z, np.zeros(4)), known.log_likelihood(z, np.zeros(4)), atol=1e-10)
    for epsilon in EPSILONS:
        assert one.delta(epsilon) == pytest.approx(known.delta(epsilon), rel=1e-8)
    single = JointNoise([3], 2.0)
    assert single.sd == pytest.approx(GeometricMechanism(np.ones(3), 2.0).noise_sd, rel=1e-10)


@pytest.mark.parametrize("name", ["different tables", "unequal records", "added"])
def test_the_likelihood_is_a_mixture_over_the_radius(name):
    noise, _ = CASES[name]
    whole = lists(noise.cells, 34 if noise.records[-1] > 1 else 16, noise.zero_sum).astype(float)
    output = np.arange(whole.shape[1]) + 5.0
    found = noise.log_probability(whole)
    assert np.exp(found).sum() == pytest.approx(1, rel=1e-9)
    seen = noise.joint_likelihoods(output)
    split = noise.split(output - whole)
    np.testing.assert_allclose(seen.log_likelihood(split), found, atol=1e-10)
    # The definition, radius by radius, for a few.
    for i in range(0, len(whole), 977):
        possible = np.all(
            [block.norm(c[i]) <= block.limits for block, c in zip(seen.blocks, split, strict=True)], axis=0
        )
        assert np.logaddexp.reduce(seen.log_weights[possible]) == pytest.approx(found[i], abs=1e-10)
    squares = [np.exp(found) @ part[:, 0] ** 2 for part in noise.split(whole)]
    np.testing.assert_allclose(np.sqrt(noise.balls.variances), np.sqrt(squares), rtol=1e-6)
    if noise.zero_sum:
        assert noise.log_probability(np.eye(len(output))[0]) == -math.inf


MECHANISM = ZeroSumJointTableMechanism(np.ones((3, 2)), 1.0, contribution=EACH)


def test_an_audit_refutes_noise_for_fewer_records_than_people_have():
    two, forgot = (
        JointTableMechanism(np.ones((2, 2)), 1.0, contribution=Contribution(m, ("each",)), adjacency="add-remove")
        for m in (2, 1)
    )
    for mechanism, verdict in ((two, "consistent"), (forgot, "refuted")):
        found = dirdp.audit(mechanism, pair=two.worst_neighbours(), claim=PURE, sampler="fast", n=20_000, random_seed=3)
        assert found.verdict == verdict


def test_releases_of_huge_and_tiny_noise():
    counts = [[3, 1], [2, 2], [0, 4]]
    assert MECHANISM.release(counts).sum(axis=1).tolist() == [4, 4, 4]
    assert np.array_equal(MECHANISM.release(counts, random_seed=5), MECHANISM.release(counts, random_seed=5))
    large = ZeroSumJointTableMechanism(np.ones((2, 2)), 2.0**200, contribution=EACH)
    assert np.all(np.abs(large.release([[1, 2], [3, 4]])) > 2.0**150)
    assert large.pure_epsilon == 2.0**-200
    assert large.noise_sd > 2.0**200
    small = JointTableMechanism(np.ones((2, 2)), 2.0**-200, contribution=EACH)
    assert np.array_equal(small.release([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    kind, stronger = MECHANISM.stronger(2.0)
    assert (kind, stronger.pure_epsilon) == ("the same mechanism with less noise", 2.0)
    assert JointNoise((2, 2, 2), 1.0, (1, 1, 1), zero_sum=True) == MECHANISM.noise
    assert JointNoise((2, 2, 2), 1.0, 2, zero_sum=True) != MECHANISM.noise
    # Curves of the same blocks in another order are equal, so tables that share a noise are composed once.
    assert JointNoise([2, 3], 1.0, (2, 1)).curves(2, 1, 1) == JointNoise([3, 2], 1.0, (1, 2)).curves(2, 1, 1)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: JointNoise([], 1.0, zero_sum=True), "cells"),
        (lambda: JointNoise([1, 2], 1.0, zero_sum=True), "cells"),
        (lambda: JointNoise([2, 2], 0.0), "scale"),
        (lambda: JointNoise([2, 2], 2.0**210), "scale"),
        (lambda: JointNoise([2, 2], 1.0, (1, 1, 1)), "one for each of 2 blocks, got 3"),
        (lambda: ZeroSumJointTableMechanism([1, 1], 1.0, adjacency="add-remove"), "private.*Use JointTableMechanism"),
        (lambda: JointNoise([2, 2], 1e7, zero_sum=True).joint_likelihoods(np.zeros(4)), "larger epsilon"),
        (lambda: JointNoise([2, 2], 1.0).split(np.zeros(3)), "of the first ones, got 3"),
        (lambda: MECHANISM.joint_rows(np.zeros(6)), "Reshape it"),
        (lambda: MECHANISM.noise.log_pmf(np.zeros((3, 2))), "joint_rows"),
        (lambda: MECHANISM.row_likelihoods(np.zeros((3, 2))), "joint_rows"),
        (lambda: MECHANISM.output_distributions(np.zeros((3, 2)), np.zeros((3, 2))), "Use audit"),
        *(
            (lambda adds=adds: ZeroSumJointTableMechanism(np.ones((2, 3, 2)), 1.0, contribution=adds), "geometric")
            for adds in (Contribution(1, ("own", "own")), Contribution(1, ("each", "any")))
        ),
        # Found by reading the text of a plan: eleven seconds and 200 MB for a number of seven digits.
        (lambda: ZeroSumJointTableMechanism([1, 1], 1.0, noise_shared_with=[(2, 1, 10**5 + 1)]), "at most 100000"),
    ],
    ids=range(15),
)
def test_what_is_refused(call, match):
    with pytest.raises(ArgumentError, match=match):
        call()
    assert MECHANISM.cell_noise is None


@pytest.mark.parametrize("scale", [2.0**-200, 1e-3, 0.02, 0.03, 1.0, 1e10])
def test_noise_that_is_as_large_is_found_where_all_noise_is_0(scale):
    """Noise of a small scale has a deviation of 0 in doubles, and a loss of privacy that is none the less finite."""
    for joint in (JointTableMechanism, ZeroSumJointTableMechanism):
        table = joint(np.ones((1, 2)), scale, noise_shared_with=[(2, 1, 1)])
        assert table.equivalent_alone.noise_sd <= table.noise_sd
        assert table.noise_sd == 0 or table.equivalent_alone.noise_sd == pytest.approx(table.noise_sd)


# Tables that share a noise.


def three(guarantee=PURE):
    priors = (np.ones(2), 1), (np.array([0.5, 2.0]), 2), (np.array([1.0, 0.3, 2.0]), 1)
    return dict(zip("abc", ZeroSumJointTableMechanism.sharing(guarantee, priors), strict=True))


def test_tables_that_share_a_noise_are_one_release():
    """Their composition is the joint mechanism once; what is beside them is added to it, and nothing is forgotten."""
    tables = three()
    whole = JointNoise([2, 2, 3], tables["a"].scale, [1, 2, 1], zero_sum=True).curves(3, 1, changes=2)
    assert [one.noise_shared_with for one in tables.values()] == [
        ((2, 2, 1), (3, 1, 1)),
        ((2, 1, 1), (3, 1, 1)),
        ((2, 1, 1), (2, 2, 1)),
    ]
    together = composed(tables, [("a", "b", "c")], 1)
    assert together.pure_epsilon == pytest.approx(1.0, abs=1e-9)
    assert together.pure_epsilon <= 1
    other = ZeroSumGeometricMechanism([1, 1], 4.0)
    more = composed(tables | {"d": other}, [("a", "b", "c", "d")], 1)
    assert more.pure_epsilon == pytest.approx(1.5, abs=1e-9)
    for epsilon in (0.0, 0.3, 0.9):
        assert together.delta(epsilon) == pytest.approx(whole.delta(epsilon), rel=1e-9)
        assert more.delta(epsilon) == Composition(((whole, 1), (other, 1))).delta(epsilon)
    with pytest.raises(ArgumentError, match="exactly the tables that share one joint noise"):
        tables["a"].prepare_together([tables["b"]], sampler="exact")
    # In a group with one of them alone, it may lose as much.
    assert composed(tables, [("a", "b", "c"), ("c",)], 1).pure_epsilon == together.pure_epsilon


@pytest.mark.parametrize("sampler", ["exact", "fast"])
def test_tables_are_drawn_with_one_radius(sampler):
    """Chi-square of the largest norm over tables against the sum over all noise; tables drawn apart are refused."""
    tables = ZeroSumJointTableMechanism.sharing(dirdp.PureDP(epsilon=0.8), [(np.ones(2), 1)] * 4)
    counts, rng, last, size = [[5, 7]] * 4, np.random.default_rng(3), 12, 600

    def drawn(together):
        first, *others = tables
        if together:
            drawings = first.prepare_together(others, sampler=sampler, random_seed=rng)
        else:
            drawings = [table.prepare(1, sampler=sampler, random_seed=rng) for table in tables]
        noisy = [drawing.of(SecretCounts(x))[0] for drawing, x in zip(drawings, counts, strict=True)]
        return min(int(max(abs(z[0] - x[0]) for z, x in zip(noisy, counts, strict=True))), last)

    radii = np.arange(200)
    mass = np.exp(-radii / tables[0].scale) * np.diff((2.0 * np.arange(-1, 200) + 1) ** 4 * (np.arange(-1, 200) >= 0))
    mass /= mass.sum()
    expected = np.append(mass[:last], mass[last:].sum()) * size
    for together in (True, False):
        found = np.bincount([drawn(together) for _ in range(size)], minlength=last + 1)
        assert (chisquare(found, expected).pvalue > 1e-6) == together


def test_a_table_alone_is_a_marginal_of_the_joint_noise():
    """The probability of one table's noise against the sum over that of the others."""
    table = three(dirdp.PureDP(epsilon=3.0))["b"]
    whole = JointNoise([2, 2, 3], table.scale, [2, 1, 1], zero_sum=True)
    rest = [[y, -y, u, v, -u - v] for y, u, v in itertools.product(range(-10, 11), range(-8, 9), range(-8, 9))]
    for z in range(-4, 5):
        every = np.concatenate([np.full((len(rest), 1), z), np.full((len(rest), 1), -z), rest], axis=1)
        found = np.logaddexp.reduce(whole.log_probability(every))
        assert table.log_likelihood([4 + z, 5 - z], [4, 5]) == pytest.approx(found, abs=1e-4)
    ratio = table.log_likelihood_ratio(np.array([[4.0, 5.0]]), np.array([4.0, 5.0]), np.array([6.0, 3.0]))
    assert 0 < ratio[0] < table.pure_epsilon
    # An output that one of two data sets cannot have loses everything or nothing.
    near, far = np.zeros(2), np.array([1e4, -1e4])
    assert whole.log_ratio(np.array([far, near]) - near, np.array([far, near]) - far).tolist() == [-1e300, 1e300]


def items(priors, people):
    """A table of the same people for each prior."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        for i, prior in enumerate(priors):
            p = pm.Dirichlet(f"p{i}", a=prior)
            pm.Multinomial(f"x{i}", n=people, p=p, observed=rng.multinomial(people, rng.dirichlet(prior)))
    return model


def test_a_release_of_several_tables_is_read_together(tmp_path):
    """Means of each table against sums over all data sets; those of joint noise are in `tests/inference`."""
    people, priors = 5, np.array([[1.0, 1.0], [0.5, 2.0]])
    release = planned_sample(PURE, items(priors, people), mechanism="joint", released_draws=2000)
    dirdp.save(release, tmp_path / "release.json")
    release = dirdp.load(tmp_path / "release.json")
    assert dirdp.verify(release)
    assert "Joint zero-sum noise" in str(dirdp.report(release))
    noisy = np.concatenate([release[f"mechanism/p{i}"]["noisy_counts"].values for i in range(2)])
    first = np.indices((people + 1, people + 1)).reshape(2, -1)
    tables = np.stack([first, people - first], axis=-1)
    logs = JointNoise([2, 2], three()["a"].scale, zero_sum=True).log_probability(noisy - np.concatenate(tables, axis=1))
    logs += sum(dirichlet_multinomial.logpmf(table, prior, people) for table, prior in zip(tables, priors, strict=True))
    weights, estimate = np.exp(logs - np.logaddexp.reduce(logs)), dirdp.estimate(release)
    for i, mean in enumerate(first @ weights):
        assert np.ravel(estimate.tables[f"p{i}"].count_means)[0] == pytest.approx(mean, rel=1e-8)
        share = (mean + priors[i, 0]) / (people + priors[i].sum())
        assert release["posterior"][f"p{i}"].values[0, :, 0].mean() == pytest.approx(share, abs=0.04)


def test_a_forged_text_does_not_share_a_noise(tmp_path):
    """Attacks: a table that leaves, one that is alone, another scale, and people of another group."""
    plan = dirdp.plan(PURE, items(np.ones((3, 2)), 50), mechanism="joint")
    dirdp.save(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    assert dirdp.load(tmp_path / "plan.json").digest == plan.digest
    for edit in (
        lambda one: one["tables"].pop(),
        lambda one: one["tables"][0]["parameters"].pop("noise_shared_with"),
        lambda one: one["tables"][0]["parameters"].update(noise_shared_with=[[2, 1, 1]]),
        lambda one: one["tables"][0]["parameters"].update(noise_shared_with=[]),
        lambda one: one["tables"][0]["parameters"].update(noise_shared_with=[[2, 1, 1], [2, 1, 1]]),
        lambda one: one["tables"][0]["parameters"].update(noise_parameter=2.0),
        lambda one: one.update(groups=[["p0", "p1"], ["p2"]]),
        lambda one: [table["parameters"].update(noise_shared_with=[[2, 1, 1]]) for table in one["tables"]],
    ):
        forged = json.loads(text)
        edit(forged)
        names = {table["name"] for table in forged["tables"]}
        forged["groups"] = [[name for name in group if name in names] for group in forged["groups"]]
        forged.pop("digest")
        (tmp_path / "forged.json").write_text(to_lines({"digest": digest(forged)} | forged))
        with pytest.raises(dirdp.errors.DirdpError):
            dirdp.load(tmp_path / "forged.json")
    assert [one["parameters"]["noise_shared_with"] for one in json.loads(text)["tables"]] == [[[2, 1, 2]]] * 3


@pytest.mark.thorough
def test_tables_of_different_people_and_of_different_kinds():
    """Tables of other people do not share a noise; a table of classes, and of a feature by class, of the same do."""
    model = items(np.ones((4, 2)), 100)
    apart = [["p0", "p1"], ["p2", "p3"]]
    with pytest.raises(ArgumentError, match="same people"):
        dirdp.plan(PURE, model, mechanism="joint", disjoint=[["p0"], ["p1"]])
    plan = dirdp.plan(PURE, model, mechanism="joint", disjoint=apart)
    assert [len(parts) for parts in plan.noise_groups] == [2, 2]
    assert dirdp.verify(dirdp.sample(plan, model))
    auto = dirdp.plan(PURE, model, mechanism="auto", disjoint=apart)
    assert auto.parts[0].mechanism.noise_shared_with == ((2, 1, 1),)
    rng, people = np.random.default_rng(0), 60
    classes, feature = rng.integers(0, 2, people), rng.integers(0, 3, people)
    with pm.Model(coords={"class": range(2), "value": range(3)}) as model:
        c = pm.Dirichlet("c", a=np.ones(2), dims="class")
        f = pm.Dirichlet("f", a=np.ones((2, 3)), dims=("class", "value"))
        pm.Categorical("y", p=c, observed=classes)
        pm.Categorical("z", p=f[classes], observed=feature)
    plan = dirdp.plan(dirdp.PureDP(epsilon=2.0), model, mechanism="joint", contribution=1)
    assert [part.mechanism.noise_shared_with for part in plan.parts] == [((6, 1, 1),), ((2, 1, 1),)]
    release = dirdp.sample(plan, model)
    assert dirdp.verify(release)
    found = dirdp.estimate(release)
    assert found.tables["f"].count_means.sum() == pytest.approx(people)
    assert "a division of the records among rows by the sums of their priors" in str(found)
    drawn = dirdp.analyse(release, random_seed=1)
    np.testing.assert_allclose(drawn["posterior"]["f"].values[0].sum(axis=-1), 1)
    with pytest.raises(ArgumentError, match="row_prior"):
        dirdp.estimate(release, row_prior={"f": [1, 1]})
    with pytest.raises(ArgumentError, match="one row"):
        dirdp.release_logp(release, np.full((2, 3), 1 / 3), "f").eval()
    assert math.isfinite(dirdp.release_logp(release, np.full(2, 1 / 2), "c").eval())


def test_a_wide_table_is_left_to_other_noise():
    """Sums over the counts of 300 cells would be no doubles: auto takes other noise, and joint noise is refused."""
    model = items(np.ones((2, 300)), 900)
    plan = dirdp.plan(PURE, model, mechanism="auto")
    assert {part.mechanism.kind for part in plan.parts} == {"geometric"}
    with pytest.raises(ArgumentError, match="mechanism='geometric'"):
        dirdp.sample(PURE, model, mechanism="joint")
