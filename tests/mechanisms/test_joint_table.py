"""Joint noise for the rows of a table and for several tables, through plans, releases and inference."""

import itertools
import json
import math

import numpy as np
import pymc as pm
import pytest
from scipy.stats import chisquare, dirichlet_multinomial

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms import ZeroSumGeometricMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.joint import JointNoise
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.drawing import SecretCounts
from pymc_dirdp.texts.grammar import digest, to_lines
from tests.planned import planned_sample

EACH = Contribution(1, ("each",))
PURE = dirdp.PureDP(epsilon=1.0)


def test_the_expected_error_is_that_of_the_figures():
    """JOINT, section A: the divergence of the frequencies from the means is .00024, and 1000 records leave .0005."""
    mechanism = ZeroSumJointTableMechanism.for_guarantee(PURE, prior=np.ones((10, 2)), contribution=EACH)
    found = estimate_error(mechanism, np.ones((10, 2)), 10_000)
    # It is simulated with the noise of one table.
    assert 0.0005 + 0.00017 < found.kl < 0.0005 + 0.0003
    item = ZeroSumJointTableMechanism([1, 1], mechanism.scale, noise_shared_with=[(2, 1, 9)])
    assert estimate_error(item, np.ones(2), 1000).kl == pytest.approx(found.kl, rel=0.03)
    # One block is zero-sum geometric noise.
    alone, known = ZeroSumJointTableMechanism(np.ones((4, 4)), 1.0), ZeroSumGeometricMechanism(np.ones((4, 4)), 2.0)
    errors = [estimate_error(one, np.ones((4, 4)), 592).kl for one in (alone, known)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


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
    """The probability of one table's noise against the sum over that of the others; the sampler draws from it."""
    table = three(dirdp.PureDP(epsilon=3.0))["b"]
    whole = JointNoise([2, 2, 3], table.scale, [2, 1, 1], zero_sum=True)
    rest = [[y, -y, u, v, -u - v] for y, u, v in itertools.product(range(-10, 11), range(-8, 9), range(-8, 9))]
    noise = np.arange(-4, 5)
    for z in noise:
        every = np.concatenate([np.full((len(rest), 1), z), np.full((len(rest), 1), -z), rest], axis=1)
        found = np.logaddexp.reduce(whole.log_probability(every))
        assert table.log_likelihood([4 + z, 5 - z], [4, 5]) == pytest.approx(found, abs=1e-4)
    expected = np.exp(table.log_likelihood(np.stack([noise, -noise], axis=-1), np.zeros(2)))
    seen = table.releases(np.array([4.0, 5.0]), 1000, sampler="exact", random_seed=1)[:, 0] - 4
    found = np.array([np.sum(seen == z) for z in noise])
    both = np.append(found, 1000 - found.sum()), 1000 * np.append(expected, 1 - expected.sum())
    assert chisquare(*both).pvalue > 1e-6
    ratio = table.log_likelihood_ratio(np.array([[4.0, 5.0]]), np.array([4.0, 5.0]), np.array([6.0, 3.0]))
    assert 0 < ratio[0] < table.pure_epsilon
    # An output that one of two data sets cannot have loses everything or nothing.
    near, far = np.zeros(2), np.array([1e4, -1e4])
    assert whole.log_ratio(np.array([far, near]) - near, np.array([far, near]) - far).tolist() == [-1e300, 1e300]


def items(number, people):
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        for i in range(number):
            p = pm.Dirichlet(f"p{i}", a=np.ones(2))
            pm.Multinomial(f"x{i}", n=people, p=p, observed=rng.multinomial(people, rng.dirichlet(np.ones(2))))
    return model


def test_a_release_of_several_tables_is_read_together(tmp_path):
    """Means of each table against sums over all data sets; those of joint noise are in `tests/inference`."""
    people, priors = 5, ([1.0, 1.0], [0.5, 2.0])
    with pm.Model() as model:
        for name, prior in zip("ab", priors, strict=True):
            p = pm.Dirichlet(name, a=prior)
            pm.Multinomial(f"x_{name}", n=people, p=p, observed=[people, 0])
    release = planned_sample(PURE, model, mechanism="joint", released_draws=2000)
    dirdp.save(release, tmp_path / "release.json")
    text = (tmp_path / "release.json").read_text()
    release = dirdp.load(tmp_path / "release.json")
    assert dirdp.verify(release)
    assert "Joint zero-sum noise" in str(dirdp.report(release))
    noisy = np.concatenate([release[f"mechanism/{name}"]["noisy_counts"].values for name in "ab"])
    whole = JointNoise([2, 2], three()["a"].scale, zero_sum=True)
    every = list(itertools.product(range(people + 1), repeat=2))
    logs = [
        sum(dirichlet_multinomial.logpmf([x, people - x], prior, people) for x, prior in zip(one, priors, strict=True))
        + float(whole.log_probability(noisy - np.array([one[0], people - one[0], one[1], people - one[1]])))
        for one in every
    ]
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    estimate = dirdp.estimate(release)
    for i, name in enumerate("ab"):
        mean = weights @ np.array([one[i] for one in every])
        assert np.ravel(estimate.tables[name].count_means)[0] == pytest.approx(mean, rel=1e-8)
        share = (mean + priors[i][0]) / (people + sum(priors[i]))
        assert release["posterior"][name].values[0, :, 0].mean() == pytest.approx(share, abs=0.04)
    (tmp_path / "edited.json").write_text(text.replace("ZeroSumJointTableMechanism", "DiscreteGaussianMechanism"))
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.load(tmp_path / "edited.json")


def test_a_forged_text_does_not_share_a_noise(tmp_path):
    """Attacks: a table that leaves, one that is alone, another scale, and people of another group."""
    plan = dirdp.plan(PURE, items(3, 50), mechanism="joint")
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
        groups = [
            [name for name in group if name in {t["name"] for t in forged["tables"]}] for group in forged["groups"]
        ]
        forged["groups"] = groups
        forged.pop("digest")
        (tmp_path / "forged.json").write_text(to_lines({"digest": digest(forged)} | forged))
        with pytest.raises(dirdp.errors.DirdpError):
            dirdp.load(tmp_path / "forged.json")
    assert [one["parameters"]["noise_shared_with"] for one in json.loads(text)["tables"]] == [[[2, 1, 2]]] * 3


@pytest.mark.thorough
def test_tables_of_different_people_and_of_different_kinds():
    """Tables of other people do not share a noise; a table of classes, and of a feature by class, of the same do."""
    model = items(4, 100)
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
    with pm.Model() as model:
        for name in "ab":
            p = pm.Dirichlet(name, a=np.ones(300))
            pm.Multinomial(f"x_{name}", n=900, p=p, observed=[3] * 300)
    plan = dirdp.plan(PURE, model, mechanism="auto")
    assert {part.mechanism.kind for part in plan.parts} == {"geometric"}
    with pytest.raises(ArgumentError, match="mechanism='geometric'"):
        dirdp.sample(PURE, model, mechanism="joint")
