"""What a report says in words: how much odds rise, and when it gives advice."""

import contextlib
import math
import re
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet, noises
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.privacy.odds import Odds
from pymc_dirdp.releases.facts import _implied
from tests.planned import hair_model, one_row, planned_sample
from tests.releases.kinds import CATEGORIES, RECORDS

TARGET, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.PureDP(epsilon=1.0)
NOISES = noises(public_totals=True).values()


def words_of(text):
    return " ".join(text.split())


def survey(n_records):
    return one_row([n_records - 10, 7, 3])


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "about the records of one person"), ({"adjacency": "add-remove", "n_records": 100}, "are in the data")],
    ids=["replace-one", "add-remove"],
)
def test_report_and_statement_give_one_number_for_the_odds(options, said):
    model = survey(100)
    release = planned_sample(TARGET, model, **options)
    factor = math.exp(Odds(dirdp.plan(TARGET, model, **options).composition, TARGET.delta, "a").log_factor)
    full = dict(dict(dirdp.report(release, full=True).sections)["Guarantee"])["posterior odds"]
    assert full == dict(dirdp.statement(release).lines)["posterior odds"]
    assert said in full
    (short,) = [line for line in str(dirdp.report(release)).splitlines() if line.startswith("  odds ")]
    for text in (full, short, dirdp.statement(release).paragraph):
        (number,) = re.findall(r"(?:times|by) ([\d.]+) at most", text)
        assert factor * 0.9 <= float(number) <= factor * 1.01


def test_noise_is_advised_where_it_is_better_by_a_quarter_and_not_where_it_is_about_as_good():
    """Oracle: the losses themselves; both sides of the threshold occur, near to it."""
    marginals = []
    for n_records in (2, 4, 5, 6, 8):
        plan = dirdp.plan(TARGET, survey(n_records))
        tried = [noise.for_guarantee(TARGET, prior=np.ones((1, 3))) for noise in NOISES]
        own, *others = (estimate_error(one, np.ones((1, 3)), n_records).kl for one in (plan.parts[0].mechanism, *tried))
        marginals.append(own / min(others))
        assert ("smaller expected KL" in words_of(str(dirdp.report(plan, full=True)))) == (marginals[-1] > 1.25)
    assert any(1.05 < marginal < 1.25 for marginal in marginals)
    assert any(1.25 < marginal < 1.4 for marginal in marginals)


@pytest.mark.parametrize("prior", [1e-300, 1e300])
def test_a_prior_from_a_file_with_which_nothing_can_be_computed_warns_of_nothing(prior, edited):
    release = dirdp.sample(TARGET, survey(500))
    changed = edited(release, (("plan", "tables", 0, "prior"), lambda own: [prior] * len(own)))
    with contextlib.suppress(dirdp.errors.ReleaseError):
        assert str(dirdp.report(changed, full=True))


def test_tables_of_the_same_people_are_advised_together_and_others_apart():
    with pm.Model() as model:
        tables = [("a", 400, 1.0), ("b", 400, 1.0), ("c", 40, 1.0), ("d", 400, 2.0), ("e", 400, 1.0)]
        for i, (name, n, prior) in enumerate(tables):
            p = pm.Dirichlet(f"p_{name}", a=np.full(2, prior))
            pm.Multinomial(name, n=n, p=p, observed=[n // 2 - i, n // 2 + i])
    target = dirdp.RenyiDP(order=4, epsilon=0.2)
    for disjoint, listed in ((None, ["p_a, p_b, p_c, p_d, p_e"]), ([["p_a", "p_b"], ["p_c", "p_d", "p_e"]], None)):
        plan = dirdp.plan(target, model, mechanism=Dirichlet(strategy="temper"), disjoint=disjoint, public=["c"])
        shown = dirdp.report(plan, full=True)
        about = [text for _, text in shown.sections[-1][1] if "mechanism='auto'" in text]
        assert len(about) == (1 if listed else 2)
        for names in listed or ["p_a, p_b", "p_c, p_d, p_e"]:
            assert sum(names in text for text in about) == 1


def drawn_in(page):
    """The circles, the faint and the strong lines and the ticks of a picture, as shares: 490 is the largest number."""
    most = float(re.search(r'text-anchor="end">([\d.]+)</text>.*share</text></svg>', page)[1])
    lines = np.array(re.findall(r'd="M([\d.]+) \d+H([\d.]+)"', page), dtype=float)
    dots = np.array(re.findall(r'cx="([\d.]+)"', page), dtype=float)
    ticks = np.array(re.findall(r'd="M([\d.]+) \d+v16"', page), dtype=float)
    return [(places - 130) / 360 * most for places in (lines[::2], lines[1::2], dots, ticks)]


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_a_notebook_shows_a_picture_of_the_shares(mechanism):
    """Oracles: the estimate's frame, the Beta quantiles of the prior, and the release."""
    labels = ["black", "<b>", "red", "blond"]
    release = dirdp.sample(TARGET, one_row([108, 286, 71, 127], [1, 2, 3, 4], labels), mechanism=mechanism)
    page = dirdp.report(release)._repr_html_()
    prior, posterior, means, ticks = drawn_in(page)
    frame = dirdp.estimate(release).frame()
    close = {"rtol": 0, "atol": 0.01}
    np.testing.assert_allclose(means, frame["share"], **close)
    assert np.all((posterior[:, 0] < means) & (means < posterior[:, 1]))
    np.testing.assert_allclose((posterior[:, 1] - posterior[:, 0]) / 3.92, frame["share_sd"], rtol=0.1)
    a = np.array([1.0, 2, 3, 4])
    np.testing.assert_allclose(prior, np.transpose(stats.beta.ppf([[0.025], [0.975]], a, 10 - a)), **close)
    np.testing.assert_allclose(ticks, release["posterior"]["p"].values.ravel(), **close)
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def shows_a_picture(found):
    return "<svg" in found._repr_html_().partition("<details>")[0]  # The groups of a tree have icons.


def test_no_picture_where_nothing_can_be_inferred_or_read():
    model = survey(592)
    noisy = dirdp.sample(PURE, model, mechanism="geometric")
    assert shows_a_picture(dirdp.report(noisy))
    assert not shows_a_picture(dirdp.report(noisy, full=True))
    assert not shows_a_picture(dirdp.report(dirdp.plan(PURE, model, mechanism="geometric")))
    assert not shows_a_picture(dirdp.report(dirdp.sample(TARGET, model, adjacency="add-remove", n_records=592)))


def test_a_notebook_shows_a_release_of_any_number_of_records_at_once(monkeypatch):
    def rows_of(n):
        with pm.Model() as model:
            p = pm.Dirichlet("p", [[1.0, 2, 1], [1, 1, 3]])
            pm.Multinomial("x", n=n, p=p, observed=[[n - 10, 7, 3], [n - 20, 9, 11]])
        return dirdp.sample(dirdp.RenyiDP(order=2, epsilon=1e-4), model, contribution=1)

    assert shows_a_picture(rows_of(100))
    assert shows_a_picture(dirdp.sample(TARGET, survey(10**9)))
    monkeypatch.setattr("pymc_dirdp.releases.report.inferences", lambda *_, **__: pytest.fail("It takes minutes."))
    many = rows_of(10**8)
    assert not shows_a_picture(many)
    assert "protects" in many._repr_html_()


def seeded(kind):
    if kind in ("bandit", "transcript"):
        bandit = dirdp.ThompsonSampler(["a", "b"], PURE, random_seed=1)
        bandit.update(["a"] * 200, [1] * 200)
        return bandit.transcript() if kind == "transcript" else bandit
    if kind == "release":
        return dirdp.sample(PURE, survey(100), mechanism="geometric", random_seed=1)
    return dirdp.sample(PURE, dirdp.latent_class(RECORDS, categories=CATEGORIES), random_seed=1)


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
@pytest.mark.parametrize("kind", ["release", "pairs", "bandit", "transcript"])
def test_what_does_not_verify_states_no_guarantee_whatever_it_is(kind):
    found = seeded(kind)
    assert not dirdp.verify(found)
    for full in (False, True):
        text = words_of(str(dirdp.report(found, full=full)))
        assert "drawn with a seed" in text
        assert not re.search("1-differential privacy|nobody can tell|protects", text)


def test_the_answer_comes_first_and_is_the_draw():
    release = dirdp.sample(TARGET, hair_model())
    title, first, second, *rest = str(dirdp.report(release)).splitlines()
    assert title == "Private posterior draw of p, (1, 1e-06)-DP"
    drawn = release["posterior"]["p"].values.reshape(-1)
    numbers = [float(number) for number in re.findall(r"[01]\.\d{3}", first)]
    np.testing.assert_allclose(numbers, drawn, atol=5.1e-4)
    assert second.startswith("  error ")
    labels = [found[1] for line in rest if (found := re.match(r"  (\S+(?: \S+)?)  ", line))]
    assert labels == ["better", "protects", "at most", "odds", "implies", "mechanism", "utility", "next"]


@pytest.mark.parametrize("options", [{}, {"adjacency": "add-remove", "n_records": 600}])
def test_every_privacy_number_is_an_upper_bound_of_the_curves(options):
    release = planned_sample(TARGET, hair_model(), **options)
    text = str(dirdp.report(release))
    curves = dirdp.plan(TARGET, hair_model(), **options).composition
    for epsilon, delta in re.findall(r"epsilon ([\d.]+) at delta ([\de.-]+)", text):
        if float(delta) > 0:
            assert float(epsilon) >= curves.epsilon(float(delta)) * (1 - 1e-2)
            assert curves.delta(float(epsilon)) <= float(delta) * (1 + 1e-6)
    ((renyi, order),) = re.findall(r"RDP: ([\d.]+) at order ([\d.]+)", text)
    ((rho, omega),) = re.findall(r"tCDP: rho ([\d.]+), omega ([\d.]+)", text)
    assert curves.renyi(float(order)) <= float(renyi) <= 1.01 * curves.renyi(float(order))
    assert curves.rho(float(omega)) <= float(rho) <= 1.01 * curves.rho(float(omega))


def test_an_order_next_to_1_is_printed_as_another():
    curves = SimpleNamespace(best_order=lambda delta: 1.0004, renyi=lambda order: order, rho=lambda omega: omega)
    stored = SimpleNamespace(plan=SimpleNamespace(guarantee=dirdp.PureDP(epsilon=1.0)), curves=curves)
    text = _implied(stored, 1e-6)
    assert "at order 1;" not in text
    assert text.startswith("RDP: ")
