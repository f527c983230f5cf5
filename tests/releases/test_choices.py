"""Bins and structures that were chosen before a release: one guarantee for all, the ledger, texts, and refusals."""

import copy
import pickle
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.releases import choices
from pymc_dirdp.releases.choices import Bins
from pymc_dirdp.texts.grammar import parse
from tests.planned import planned_sample

PURE = dirdp.PureDP(epsilon=1.0)
_RNG = np.random.default_rng(20261123)
AGES = _RNG.gamma(4, 12, 1000)
ILL = np.where(AGES + _RNG.normal(0, 10, 1000) > 60, "yes", "no")


def choose(guarantee=None, ledger=None, **options):
    part = dirdp.PureDP(epsilon=0.2) if guarantee is None else guarantee
    records = {"age": AGES, "who": np.arange(len(AGES))}
    options = {"candidates": range(1, 200)} | options
    return dirdp.choose_bins(part, records, "age", n_bins=3, ledger=ledger, **options)


def records(bins):
    return {"age": bins.label(AGES), "ill": ILL}, {"age": bins.labels, "ill": ["no", "yes"]}


def classifier(bins):
    columns, categories = records(bins)
    return dirdp.naive_bayes(columns, "ill", categories=categories)


@pytest.fixture(autouse=True)
def _no_other_bins(monkeypatch):
    """Bins that another test has left would have to be covered, too, if they have the same edges."""
    monkeypatch.setattr(choices, "_UNPAID", WeakValueDictionary())


@pytest.fixture(scope="module")
def bins():
    return choose()


@pytest.fixture(scope="module")
def model(bins):
    return classifier(bins)


@pytest.mark.parametrize(
    ("target", "mechanism"),
    [(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), "marginals"), (dirdp.RenyiDP(order=4.0, epsilon=0.2), "auto")],
)
def test_one_guarantee_covers_the_bins_and_the_tables(bins, model, target, mechanism):
    plan = dirdp.plan(target, model, mechanism=mechanism, after=bins)
    assert plan.after == (bins,)
    less = replace(target, epsilon=0.97 * target.epsilon)
    assert plan.composition.satisfies(target)
    assert not plan.composition.satisfies(less)
    assert plan.tables_alone.satisfies(less)


def test_bins_and_a_structure_are_both_chosen_before(bins):
    columns, categories = records(bins)
    structure = dirdp.choose_structure(dirdp.PureDP(epsilon=0.8), columns, categories=categories)
    network = dirdp.bayesian_network(columns, structure, categories=categories)
    target = dirdp.PureDP(epsilon=1.5)
    plan = dirdp.plan(target, network, mechanism="geometric", after=[bins, structure])
    assert plan.after == (bins, structure)
    parts = bins.mechanism.pure_epsilon + structure.mechanism.pure_epsilon + plan.tables_alone.pure_epsilon
    assert 0.999 * 1.5 < parts <= 1.5
    release = dirdp.sample(plan, network)
    assert dirdp.verify(release)
    said = " ".join(str(dirdp.report(release, full=True)).split())
    assert "where the bins of age end was chosen from the same records" in said
    assert "which tables there are was chosen from the same records" in said
    # The one does not stand for the other, nor a structure for another one, which may have cost less.
    other = dirdp.choose_structure(dirdp.PureDP(epsilon=0.04), columns, categories=categories)
    for after in (bins, [bins, other], [bins, bins]):
        with pytest.raises(ArgumentError, match="structure of this model"):
            dirdp.plan(target, network, mechanism="geometric", after=after)
    with pytest.raises(ArgumentError, match="cycle"):
        replace(structure, parents=(("age", ("ill",)), ("ill", ("age",))))
    own = choose()
    network = dirdp.bayesian_network(records(own)[0], structure, categories=records(own)[1])
    with pytest.raises(ArgumentError, match="bins of 'age'"):
        dirdp.plan(target, network, mechanism="geometric", after=structure)


def test_bins_that_nobody_has_paid_for_are_refused():
    free = choose()
    columns, categories = records(free)
    wider = dirdp.naive_bayes(columns, "ill", categories=categories | {"age": ["unknown", *free.labels]})
    with pm.Model(coords={"age": free.labels, "ill": ["no", "yes"]}) as own:
        p = pm.Dirichlet("p", np.ones((len(free.labels), 2)), dims=("age", "ill"))
        pm.Multinomial("x", n=[9] * len(free.labels), p=p, observed=[[4, 5]] * len(free.labels), dims=("age", "ill"))
    for model, options in ((classifier(free), {}), (wider, {}), (own, {"contribution": 1, "public": ["x"]})):
        with pytest.raises(ArgumentError, match=r"bins of 'age'.*nothing covers what that has cost"):
            dirdp.plan(PURE, model, mechanism="geometric", **options)
    assert "not recorded: pass after=" in str(free)


def test_the_discount_belongs_to_an_entry_of_the_same_ledger(tmp_path):
    part, full = dirdp.PureDP(epsilon=0.25), dirdp.PureDP(epsilon=2.0)
    first = dirdp.Ledger(PURE)
    paid = choose(part, first)
    assert first.holds(paid.entry, paid.fingerprint)
    assert dirdp.plan(PURE, classifier(paid), mechanism="geometric").after == ()

    def cost(after, ledger):
        before = ledger.spent["epsilon"]
        planned_sample(PURE, classifier(paid), mechanism="geometric", after=after, ledger=ledger)
        return ledger.spent["epsilon"] - before

    other = dirdp.Ledger(PURE)
    choose(part, other)  # The same choice, and the same number of an entry.
    assert cost(paid, dirdp.Ledger(full)) == pytest.approx(1.0, rel=2e-3)
    assert not other.holds(paid.entry, paid.fingerprint)
    # Edited: bins that nobody has paid for, with the entry of others, of another number, or a made-up one.
    free, ledger, path = choose(part), dirdp.Ledger(full), tmp_path / "bins.json"
    real = choose(part, ledger)
    forged = [paid.entry, real.entry, replace(real.entry, number=2), Receipt("0" * 32, 1, "0" * 64)]
    for entry in forged:
        dirdp.save(replace(free, entry=entry), path, overwrite=True)
        lied = dirdp.load(path)
        assert lied.entry == entry
        assert not ledger.holds(lied.entry, lied.fingerprint)
    assert cost([free, lied], ledger) == pytest.approx(1.0, rel=2e-3)
    for times in (1, 2):
        ledger = dirdp.Ledger(full)
        dirdp.save(choose(part, ledger), path, overwrite=True)
        assert cost([free, *[dirdp.load(path)] * times], ledger) == pytest.approx(0.75, rel=2e-3)


def halves(epsilon=5.0):
    """Bins with the edges of all others of this function, whatever they cost, and a table of them."""
    ages = {"age": np.repeat([20.0, 60.0], 500)}
    bins = dirdp.choose_bins(dirdp.PureDP(epsilon=epsilon), ages, "age", n_bins=2, candidates=[50], ledger=None)
    with pm.Model(coords={"age": bins.labels}) as table:
        pm.Multinomial("x", n=20, p=pm.Dirichlet("p", np.ones(2), dims="age"), observed=[10, 10])
    return bins, table


def plan_after(after, table, epsilon=20.0):
    return dirdp.plan(dirdp.PureDP(epsilon=epsilon), table, mechanism="geometric", after=after)


def test_a_dear_choice_is_not_covered_by_a_cheap_one_with_the_same_edges():
    (dear, table), (cheap, _), (same, _) = halves(), halves(0.001), halves()
    assert dear.labels == cheap.labels
    assert dear != same
    for after in (cheap, [dear, cheap], [dear, dear, cheap]):
        with pytest.raises(ArgumentError, match="have cost twice"):
            plan_after(after, table)
    every = plan_after([dear, cheap, same], table)
    assert every.tables_alone.pure_epsilon == pytest.approx(20 - 10.001, rel=1e-3)
    # A copy of a file stands for what it is a copy of, also when that is gone.
    copied = Bins.from_dict(cheap.facts)
    assert plan_after([dear, copied, same], table).after[1] == cheap
    dirdp.sample(every, table)
    plan_after(same, table)
    with pytest.raises(ArgumentError, match="nothing covers"):
        plan_after((), table)
    del cheap, every, same
    unpaid, _ = halves(0.001)
    again = Bins.from_dict(unpaid.facts)
    del unpaid
    with pytest.raises(ArgumentError, match="nothing covers"):
        plan_after(dear, table)
    assert again.entry is None


@pytest.mark.parametrize("copied", [lambda bins: pickle.loads(pickle.dumps(bins)), copy.copy, copy.deepcopy])
def test_a_copy_of_bins_is_not_paid_either(copied):
    original, table = halves()
    bins = copied(original)
    del original
    with pytest.raises(ArgumentError, match="nothing covers"):
        plan_after((), table)
    plan_after(bins, table)


def test_wrong_things_are_refused(bins, model):
    for wrong in (dict(bins.facts), [bins, None], PURE):
        with pytest.raises(ArgumentError, match="Expected after to be a result of choose_structure or choose_bins"):
            dirdp.plan(PURE, model, after=wrong)
    with pytest.raises(UnattainableError, match=r"before does not satisfy .*the bins 0\.2"):
        dirdp.plan(dirdp.PureDP(epsilon=0.01), model, after=bins, mechanism="geometric")
    with pytest.raises(UnattainableError):
        dirdp.plan(bins.guarantee, model, mechanism="geometric", after=[bins, bins])
    with pytest.raises(ArgumentError, match="adjacency"):
        dirdp.plan(PURE, model, after=bins, adjacency="add-remove", n_records=1000)
    people = choose(unit="who", contribution=1)
    with pytest.raises(ArgumentError, match=r"unit='who'.*'record'"):
        dirdp.plan(PURE, classifier(people), after=people)


def test_an_error_repeats_no_long_text(bins, text_of_facts):
    with pytest.raises(ArgumentError) as caught:
        parse(text_of_facts(bins.facts | {"unit": "9" * 5000 + "\n"}).encode(), Bins)
    assert 100 < len(str(caught.value)) < 1000


def test_every_bin_has_a_name_of_its_own(bins):
    mechanism = QuantilesMechanism(4, n_candidates=9, scale=8.0)
    names = {
        (18.0,): ("below 18", "18 or more"),
        (-0.5, 0.1, 3.0): ("below -0.5", "-0.5 to below 0.1", "0.1 to below 3", "3 or more"),
        (1.0, 1.0 + 2**-52): ("below 1", "1 to below 1.0000000000000002", "1.0000000000000002 or more"),
    }
    for edges, expected in names.items():
        other = replace(bins, edges=edges, mechanism=mechanism)
        assert other.labels == expected
        assert set(other.label([-100.0, *edges])) == set(expected)
        assert all(name in str(other) for name in expected)
    for edges in ((), (3.0, 1.0), (1.0, 1.0), (1.0, 2.0, 3.0), (np.inf,)):
        with pytest.raises(ArgumentError, match="does not choose"):
            replace(bins, edges=edges)
