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
from pymc_dirdp.mechanisms import JointTableMechanism, ZeroSumGeometricMechanism, ZeroSumJointTableMechanism
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
SMALL = ZeroSumJointTableMechanism(np.ones((2, 2)), 1.3, contribution=EACH)


def survey(people, items=10, answers=2):
    observed = np.random.default_rng(0).integers(0, answers, (people, items))
    with pm.Model(coords={"item": range(items), "answer": range(answers), "person": range(people)}) as model:
        p = pm.Dirichlet("p", a=np.ones((items, answers)), dims=("item", "answer"))
        pm.Categorical("answers", p=p[None], observed=observed, dims=("person", "item"))
    return model


def test_a_release_is_read_with_the_radius_that_the_rows_share(tmp_path):
    """Means against a sum over all data sets; two rows of 6 people."""
    model = survey(6, items=2)
    release = planned_sample(PURE, model, mechanism="joint", unit="person", released_draws=4000)
    (part,) = dirdp.plan(PURE, model, mechanism="joint", unit="person").parts
    assert part.mechanism.kind == "joint"
    noisy = release["mechanism/p"]["noisy_counts"].values
    tables = np.array([[[a, 6 - a], [b, 6 - b]] for a in range(7) for b in range(7)], dtype=float)
    # Flat priors give every count of a row the same probability.
    weights = np.exp(part.mechanism.log_likelihood(noisy, tables))
    means = np.einsum("i,ijk->jk", weights / weights.sum(), (tables + 1) / 8)
    estimate = dirdp.estimate(release)
    np.testing.assert_allclose(np.ravel(estimate.tables["p"].share_means), means.ravel(), rtol=1e-9)
    np.testing.assert_allclose(release["posterior"]["p"].values.mean(axis=(0, 1)), means, atol=0.03)
    dirdp.save(release, tmp_path / "release.json")
    back = dirdp.load(tmp_path / "release.json")
    assert dirdp.verify(back)
    assert "Joint zero-sum noise" in str(dirdp.report(back))
    edited = (tmp_path / "release.json").read_text().replace("ZeroSumJointTableMechanism", "DiscreteGaussianMechanism")
    (tmp_path / "edited.json").write_text(edited)
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.load(tmp_path / "edited.json")


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


def test_other_tables_are_refused_with_a_way_out():
    for shape, axes in (((3, 2), ("own",)), ((2, 3, 2), ("each", "any"))):
        with pytest.raises(ArgumentError, match="mechanism='geometric'"):
            ZeroSumJointTableMechanism(np.ones(shape), 1.0, contribution=Contribution(1, axes))
    with pytest.raises(ArgumentError, match="private"):
        ZeroSumJointTableMechanism(np.ones((3, 2)), 1.0, contribution=EACH, adjacency="add-remove")


def test_what_is_no_product_says_so():
    noisy = np.array([[5.0, 7.0], [9.0, 1.0]])
    for call in (SMALL.noise.log_pmf, SMALL.row_likelihoods):
        with pytest.raises(ArgumentError, match="joint_rows"):
            call(noisy)
    with pytest.raises(ArgumentError, match="Use audit"):
        SMALL.output_distributions(noisy, noisy)
    assert SMALL.cell_noise is None


ALONE = (("a", np.ones(2), 1), ("b", np.array([0.5, 2.0]), 2), ("c", np.array([1.0, 0.3, 2.0]), 1))


def three(guarantee=PURE):
    tables = ZeroSumJointTableMechanism.sharing(guarantee, [(prior, m) for _, prior, m in ALONE])
    return dict(zip("abc", tables, strict=True))


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


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["exact", "fast"])
def test_tables_are_drawn_with_one_radius(sampler):
    """Chi-square of the largest norm over tables against the sum over all noise; tables drawn apart are refused."""
    tables = ZeroSumJointTableMechanism.sharing(dirdp.PureDP(epsilon=0.8), [(np.ones(2), 1)] * 2)
    counts, rng = [[5, 7], [9, 1]], np.random.default_rng(3)

    def together():
        first, *others = tables
        drawings = first.prepare_together(others, sampler=sampler, random_seed=rng)
        drawn = (drawing.of(SecretCounts(x))[0] for drawing, x in zip(drawings, counts, strict=True))
        return max(abs(noisy[0] - x[0]) for noisy, x in zip(drawn, counts, strict=True))

    def apart():
        return max(
            abs(one.releases(np.array(x, dtype=float), 1, random_seed=rng)[0, 0] - x[0])
            for one, x in zip(tables, counts, strict=True)
        )

    mass = np.array([1.0, *(8 * r * math.exp(-r / tables[0].scale) for r in range(1, 200))])
    mass, last, size = mass / mass.sum(), 8, 2500
    expected = np.append(mass[:last], mass[last:].sum()) * size
    for draw, is_right in ((together, True), (apart, False)):
        found = np.bincount([min(int(draw()), last) for _ in range(size)], minlength=last + 1)
        assert (chisquare(found, expected).pvalue > 1e-6) == is_right


def test_a_table_alone_is_a_marginal_of_the_joint_noise():
    """The probability of one table's noise against the sum over that of the others; the sampler draws from it."""
    table = three(dirdp.PureDP(epsilon=2.0))["b"]
    whole = JointNoise([2, 2, 3], table.scale, [2, 1, 1], zero_sum=True)
    rest = [[y, -y, u, v, -u - v] for y, u, v in itertools.product(range(-18, 19), range(-13, 14), range(-13, 14))]
    noise = np.arange(-6, 7)
    for z in noise:
        every = np.concatenate([np.full((len(rest), 1), z), np.full((len(rest), 1), -z), rest], axis=1)
        found = np.logaddexp.reduce(whole.log_probability(every))
        assert table.log_likelihood([4 + z, 5 - z], [4, 5]) == pytest.approx(found, abs=1e-6)
    expected = np.exp(table.log_likelihood(np.stack([noise, -noise], axis=-1), np.zeros(2)))
    seen = table.releases(np.array([4.0, 5.0]), 5000, sampler="exact", random_seed=1)[:, 0] - 4
    found = np.array([np.sum(seen == z) for z in noise])
    both = np.append(found, 5000 - found.sum()), 5000 * np.append(expected, 1 - expected.sum())
    assert chisquare(*both).pvalue > 1e-6
    ratio = table.log_likelihood_ratio(np.array([[4.0, 5.0]]), np.array([4.0, 5.0]), np.array([6.0, 3.0]))
    assert 0 < ratio[0] < table.pure_epsilon
    # An output that one of two data sets cannot have loses everything or nothing.
    near, far = np.zeros(2), np.array([1e4, -1e4])
    assert whole.log_ratio(np.array([far, near]) - near, np.array([far, near]) - far).tolist() == [-1e300, 1e300]


def items(number=10, people=1000, cells=2):
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        for i in range(number):
            p = pm.Dirichlet(f"p{i}", a=np.ones(cells))
            pm.Multinomial(f"x{i}", n=people, p=p, observed=rng.multinomial(people, rng.dirichlet(np.ones(cells))))
    return model


@pytest.mark.thorough
def test_ten_items_of_one_survey():
    """JOINT, section A: a variance of 43.9 where it was 178.5 at (1, 1e-6) and 199.8 for a pure guarantee.

    With a private number of people the variance is 2.6 times less than that of independent noise.
    """
    model = items()
    private = dirdp.plan(PURE, model, mechanism="auto", adjacency="add-remove", n_records=1000)
    assert {type(part.mechanism) for part in private.parts} == {JointTableMechanism}
    assert private.composition.satisfies(PURE)
    assert private.parts[0].mechanism.noise_sd ** 2 == pytest.approx(76.95, abs=0.01)
    for target in (PURE, dirdp.ApproxDP(epsilon=1.0, delta=1e-6)):
        plan = dirdp.plan(target, model, mechanism="auto")
        assert {part.mechanism.kind for part in plan.parts} == {"joint"}
        assert plan.parts[0].mechanism.noise_sd ** 2 == pytest.approx(43.92, abs=0.01)
        assert plan.composition.satisfies(target)
        assert not plan.composition.satisfies(dirdp.PureDP(epsilon=0.999))
    plan = dirdp.plan(dirdp.ZeroCDP(rho=0.5), model, mechanism="auto")
    assert {part.choice.best for part in plan.parts} == {"gaussian"}
    assert "joint" in dict(plan.parts[0].choice.expected_kl)


def test_a_release_of_several_tables_is_read_together(tmp_path):
    """Means of each table, and of products over tables, against sums over all data sets."""
    people, priors = 6, ([1.0, 1.0], [0.5, 2.0], [1.0, 0.3, 2.0])
    with pm.Model() as model:
        for name, prior in zip("abc", priors, strict=True):
            p = pm.Dirichlet(name, a=prior)
            pm.Multinomial(f"x_{name}", n=people, p=p, observed=[people, *[0] * (len(prior) - 1)])
    release = planned_sample(PURE, model, mechanism="joint", released_draws=4000)
    dirdp.save(release, tmp_path / "release.json")
    release = dirdp.load(tmp_path / "release.json")
    assert dirdp.verify(release)
    noisy = [release[f"mechanism/{name}"]["noisy_counts"].values for name in "abc"]
    scale = dirdp.plan(PURE, model, mechanism="joint").parts[0].mechanism.scale
    whole = JointNoise([2, 2, 3], scale, zero_sum=True)

    def possible(prior):
        for x in itertools.product(range(people + 1), repeat=len(prior)):
            if sum(x) == people:
                yield x, float(dirichlet_multinomial.logpmf(x, prior, people))

    every = list(itertools.product(*map(possible, priors)))
    logs = [
        sum(log for _, log in one)
        + float(whole.log_probability(np.concatenate(noisy) - np.concatenate([x for x, _ in one])))
        for one in every
    ]
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    counts = [np.array([one[i][0] for one in every], dtype=float) for i in range(3)]
    estimate, drawn = dirdp.estimate(release), dirdp.analyse(release, draws=20_000, chains=1, random_seed=1)
    firsts = np.stack([x[:, 0] for x in counts])
    for i, name in enumerate("abc"):
        np.testing.assert_allclose(np.ravel(estimate.tables[name].count_means), weights @ counts[i], rtol=1e-8)
        shares = (weights @ counts[i] + priors[i]) / (people + sum(priors[i]))
        np.testing.assert_allclose(release["posterior"][name].values[0].mean(axis=0), shares, atol=0.03)
    # Squares from the middle say how large the noise was, which the tables tell of each other.
    off = np.abs(firsts - np.array([[z[0]] for z in noisy]))
    seen = [drawn["latent_counts"][name].values[0, :, 0] - noisy[i][0] for i, name in enumerate("abc")]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        product = np.abs(seen[i] * seen[j])
        assert product.mean() == pytest.approx(weights @ (off[i] * off[j]), abs=5 * product.std() / math.sqrt(20_000))


def test_few_characters_state_no_million_blocks():
    """Found by reading the text of a plan: eleven seconds and 200 MB for a number of seven digits."""
    with pytest.raises(dirdp.errors.ArgumentError, match="at most 100000 blocks"):
        ZeroSumJointTableMechanism([1, 1], 1.0, noise_shared_with=[(2, 1, 10**5 + 1)])


def test_a_forged_text_does_not_share_a_noise(tmp_path):
    """Attacks: a table that leaves, one that is alone, another scale, and people of another group."""
    plan = dirdp.plan(PURE, items(3, people=50), mechanism="joint")
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
def test_tables_of_different_people_do_not_share_a_noise():
    model = items(4, people=100)
    apart = [["p0", "p1"], ["p2", "p3"]]
    with pytest.raises(ArgumentError, match="same people"):
        dirdp.plan(PURE, model, mechanism="joint", disjoint=[["p0"], ["p1"]])
    plan = dirdp.plan(PURE, model, mechanism="joint", disjoint=apart)
    assert [len(parts) for parts in plan.noise_groups] == [2, 2]
    release = dirdp.sample(plan, model)
    assert dirdp.verify(release)
    auto = dirdp.plan(PURE, model, mechanism="auto", disjoint=apart)
    assert auto.parts[0].mechanism.noise_shared_with == ((2, 1, 1),)


@pytest.mark.thorough
def test_tables_of_all_kinds_in_one_noise():
    """Items by answers, a table of classes, one of a feature by class, and what has no categories to hide."""
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


@pytest.mark.parametrize("scale", [2.0**-200, 1e-3, 0.02, 0.03, 1.0, 1e10])
def test_noise_that_is_as_large_is_found_where_all_noise_is_0(scale):
    """Noise of a small scale has a deviation of 0 in doubles, and a loss of privacy that is none the less finite."""
    for joint in (JointTableMechanism, ZeroSumJointTableMechanism):
        table = joint(np.ones((1, 2)), scale, noise_shared_with=[(2, 1, 1)])
        assert table.equivalent_alone.noise_sd <= table.noise_sd
        assert table.noise_sd == 0 or table.equivalent_alone.noise_sd == pytest.approx(table.noise_sd)
