"""Bins and structures that were chosen before a release: one guarantee for all, the ledger, texts, and refusals."""

import copy
import gc
import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.releases.choices import Bins
from pymc_dirdp.texts.grammar import parse
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
_RNG = np.random.default_rng(20261123)
AGES = _RNG.gamma(4, 12, 4000)
ILL = np.where(AGES + _RNG.normal(0, 10, 4000) > 60, "yes", "no")


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
def _no_other_bins():
    """Bins that another test has left would have to be covered, too, if they have the same edges."""
    gc.collect()


@pytest.fixture(scope="module")
def bins():
    """No others have such edges."""
    return choose(candidates=np.arange(1.5, 200))


@pytest.fixture(scope="module")
def model(bins):
    return classifier(bins)


@pytest.fixture(scope="module")
def both(bins):
    """Bins, a structure of them, and its network."""
    columns, categories = records(bins)
    structure = dirdp.choose_structure(dirdp.PureDP(epsilon=0.8), columns, categories=categories)
    return structure, dirdp.bayesian_network(columns, structure, categories=categories)


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric", "gaussian", "marginals", "auto"])
def test_one_guarantee_covers_the_bins_and_the_tables(bins, model, mechanism):
    plan = dirdp.plan(TARGET, model, mechanism=mechanism, after=bins)
    assert plan.after == (bins,)
    assert 0.9 * TARGET.delta < plan.composition.delta(1.0) <= TARGET.delta
    assert plan.tables_alone.delta(1.0) < 0.6 * TARGET.delta
    # A mutant: the tables take the whole guarantee, and the bins are forgotten.
    public = classifier_of_public(bins)
    forgotten = replace(dirdp.plan(TARGET, public, mechanism=mechanism), after=plan.after)
    assert forgotten.tables_alone.satisfies(TARGET)
    with pytest.raises(UnattainableError, match="does not satisfy"):
        dirdp.sample(forgotten, public)


def classifier_of_public(bins):
    """The same model with other names of the bins, as if they were public."""
    columns, categories = records(bins)
    names = {label: f"bin {i}" for i, label in enumerate(bins.labels)}
    columns = columns | {"age": [names[label] for label in columns["age"]]}
    return dirdp.naive_bayes(columns, "ill", categories=categories | {"age": list(names.values())})


def test_bins_and_a_structure_are_both_chosen_before(bins, both):
    structure, network = both
    for mechanism in ("marginals", "geometric"):
        plan = dirdp.plan(dirdp.PureDP(epsilon=1.5), network, mechanism=mechanism, after=[bins, structure])
        assert plan.after == (bins, structure)
        parts = bins.mechanism.pure_epsilon + structure.mechanism.pure_epsilon + plan.tables_alone.pure_epsilon
        assert 0.999 * 1.5 < parts <= 1.5
        release = dirdp.sample(plan, network)
        assert dirdp.verify(release)
        for text in (
            str(dirdp.report(plan, full=True)),
            str(dirdp.report(release, full=True)),
            str(dirdp.statement(release)),
        ):
            said = " ".join(text.split())
            assert "where the bins of age end was chosen from the same records" in said
            assert "which tables there are was chosen from the same records" in said
    # The one does not stand for the other, nor a structure for another one, which may have cost less.
    other = dirdp.choose_structure(dirdp.PureDP(epsilon=0.04), records(bins)[0], categories=records(bins)[1])
    for after in (bins, [bins, other], [bins, bins]):
        with pytest.raises(ArgumentError, match="structure of this model"):
            dirdp.plan(dirdp.PureDP(epsilon=2.0), network, mechanism="geometric", after=after)
    with pytest.raises(ArgumentError, match="bins of 'age'"):
        dirdp.plan(dirdp.PureDP(epsilon=2.0), network, mechanism="geometric", after=structure)


def test_bins_that_nobody_has_paid_for_are_refused(model):
    free = choose()
    for table in (classifier(free), model):
        with pytest.raises(ArgumentError, match="nothing covers what that has cost"):
            dirdp.plan(TARGET, table, mechanism="geometric")
    assert "not recorded: pass after=" in str(free)
    # Also with a category more.
    columns, categories = records(free)
    wider = dirdp.naive_bayes(columns, "ill", categories=categories | {"age": ["unknown", *free.labels]})
    with pytest.raises(ArgumentError, match="bins of 'age'"):
        dirdp.plan(TARGET, wider, mechanism="geometric")
    # And in a model that somebody wrote, where the bins are the rows.
    with pm.Model(coords={"age": free.labels, "ill": ["no", "yes"]}) as own:
        p = pm.Dirichlet("p", np.ones((len(free.labels), 2)), dims=("age", "ill"))
        pm.Multinomial("x", n=[9] * len(free.labels), p=p, observed=[[4, 5]] * len(free.labels), dims=("age", "ill"))
    with pytest.raises(ArgumentError, match="bins of 'age'"):
        dirdp.plan(TARGET, own, contribution=1, public=["x"])


def test_the_discount_belongs_to_an_entry_of_the_same_ledger(tmp_path):
    """Bins that ledger A holds are charged to ledger B, too, and so are those whose file was edited."""
    limit, part = dirdp.PureDP(epsilon=1.0), dirdp.PureDP(epsilon=0.25)
    first = dirdp.Ledger(limit)
    paid = choose(part, first)
    assert first.holds(paid.entry, paid.fingerprint)
    # What a ledger has recorded needs no after=.
    assert dirdp.plan(limit, classifier(paid), mechanism="geometric").after == ()

    def cost(after, ledger):
        before = ledger.spent["epsilon"]
        planned_sample(limit, classifier(paid), mechanism="geometric", after=after, ledger=ledger)
        return ledger.spent["epsilon"] - before

    other = dirdp.Ledger(limit)
    choose(part, other)  # The same choice, and the same number of an entry.
    full = dirdp.PureDP(epsilon=2.0)
    assert cost(paid, dirdp.Ledger(full)) == pytest.approx(1.0, rel=2e-3)
    assert not other.holds(paid.entry, paid.fingerprint)
    # Edited: bins that nobody has paid for, with the entry of others, of another number, or a made-up one.
    free, ledger = choose(part), dirdp.Ledger(full)
    real = choose(part, ledger)
    forged = [
        paid.entry,
        real.entry,
        replace(real.entry, number=2),
        replace(real.entry, hash="0" * 64),
        Receipt("0" * 32, 1, "0" * 64),
    ]
    for entry in forged:
        path = tmp_path / "bins.json"
        dirdp.save(replace(free, entry=entry), path, overwrite=True)
        lied = dirdp.load(path)
        assert lied.entry == entry
        assert not ledger.holds(lied.entry, lied.fingerprint)
    assert cost([free, lied], ledger) == pytest.approx(1.0, rel=2e-3)
    # What is true is believed, from a file as well; but one entry pays once.
    for times in (1, 2):
        ledger = dirdp.Ledger(full)
        dirdp.save(choose(part, ledger), path, overwrite=True)
        after = [free, *[dirdp.load(path)] * times]
        assert cost(after, ledger) == pytest.approx(0.75, rel=2e-3)


def test_a_dear_choice_is_not_covered_by_a_cheap_one_with_the_same_edges():
    ages = {"age": np.repeat([20.0, 60.0], 2000)}

    def halves(epsilon):
        return dirdp.choose_bins(dirdp.PureDP(epsilon=epsilon), ages, "age", n_bins=2, candidates=[50], ledger=None)

    dear, cheap, same = halves(5.0), halves(0.001), halves(5.0)
    assert dear.labels == cheap.labels
    assert dear != same
    columns = {"age": dear.label(ages["age"]), "ill": ["no", "yes"] * 2000}
    table = dirdp.naive_bayes(columns, "ill", categories={"age": dear.labels, "ill": ["no", "yes"]})
    target = dirdp.PureDP(epsilon=20.0)
    for after in (cheap, [dear, cheap], [dear, dear, cheap]):
        with pytest.raises(ArgumentError, match="have cost twice"):
            dirdp.plan(target, table, mechanism="geometric", after=after)
    every = dirdp.plan(target, table, mechanism="geometric", after=[dear, cheap, same])
    assert every.tables_alone.pure_epsilon == pytest.approx(20 - 10.001, rel=1e-3)
    # A copy of a file stands for what it is a copy of, also when that is gone.
    copied = dirdp.releases.Bins.from_dict(cheap.facts)
    assert dirdp.plan(target, table, mechanism="geometric", after=[dear, copied, same]).after[1] == cheap
    # An earlier release has covered those with the same edges.
    planned_sample(target, table, mechanism="geometric", after=[dear, cheap, same])
    dirdp.plan(target, table, mechanism="geometric", after=same)
    with pytest.raises(ArgumentError, match="nothing covers"):
        dirdp.plan(target, table, mechanism="geometric")
    dear, cheap = halves(5.0), halves(0.001)
    copied = dirdp.releases.Bins.from_dict(cheap.facts)
    del cheap, every, same
    gc.collect()
    with pytest.raises(ArgumentError, match="nothing covers"):
        dirdp.plan(target, table, mechanism="geometric", after=dear)
    assert copied.entry is None


def test_wrong_things_are_refused(bins, model):
    for wrong in (bins.labels, dict(bins.facts), "bins", [bins, None], 1.0, TARGET):
        with pytest.raises(ArgumentError, match="Expected after to be a result of choose_structure or choose_bins"):
            dirdp.plan(TARGET, model, after=wrong)
    with pytest.raises(UnattainableError, match=r"before does not satisfy .*the bins 0\.2"):
        dirdp.plan(dirdp.ApproxDP(epsilon=0.01, delta=1e-9), model, after=bins)
    with pytest.raises(UnattainableError):
        dirdp.plan(bins.guarantee, model, mechanism="geometric", after=[bins, bins])
    with pytest.raises(ArgumentError, match="adjacency"):
        dirdp.plan(TARGET, model, after=bins, adjacency="add-remove", n_records=4000)
    people = choose(unit="who", contribution=1)
    with pytest.raises(ArgumentError, match=r"unit='who'.*'record'"):
        dirdp.plan(TARGET, classifier(people), after=people)


@pytest.mark.parametrize("copied", [lambda bins: pickle.loads(pickle.dumps(bins)), copy.copy, copy.deepcopy])
def test_a_copy_of_bins_is_not_paid_either(copied):
    """Found by attack: the cost of bins that came back from a pickle was covered by nothing, and nobody was told."""
    ages = {"age": np.arange(4000) % 80 + 10}
    names = {"n_bins": 2, "candidates": [50], "ledger": None}
    bins = copied(dirdp.choose_bins(dirdp.PureDP(epsilon=5.0), ages, "age", **names))
    gc.collect()
    with pm.Model(coords={"age": bins.labels}) as model:
        pm.Multinomial("x", n=20, p=pm.Dirichlet("p", np.ones(2), dims="age"), observed=[10, 10])
    with pytest.raises(ArgumentError, match="nothing covers"):
        dirdp.plan(dirdp.PureDP(epsilon=9.0), model, mechanism="geometric")
    dirdp.plan(dirdp.PureDP(epsilon=9.0), model, mechanism="geometric", after=bins)


FIELDS = {"guarantee": dirdp.PureDP(epsilon=2.0), "unit": "record", "entry": Receipt("0" * 32, 1, "0" * 64)}
FIELDS |= {"identity": "0" * 32, "reproducible": False, "library_version": "0.1.0"}


def test_an_error_repeats_no_long_text(bins, text_of_facts):
    """Found by 100,000 edits: a unit of 5,000 digits and a control character was repeated as a whole."""
    with pytest.raises(ArgumentError) as caught:
        parse(text_of_facts(bins.facts | {"unit": "9" * 5000 + "\n"}).encode(), Bins)
    assert 100 < len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("edges", "names"),
    [
        ((18.0,), ("below 18", "18 or more")),
        ((-0.5, 0.1, 3.0), ("below -0.5", "-0.5 to below 0.1", "0.1 to below 3", "3 or more")),
        ((1.0, 1.0 + 2**-52), ("below 1", "1 to below 1.0000000000000002", "1.0000000000000002 or more")),
    ],
)
def test_every_bin_has_a_name_of_its_own(edges, names):
    bins = Bins(column="age", edges=edges, mechanism=QuantilesMechanism(4, n_candidates=9, scale=8.0), **FIELDS)
    assert bins.labels == names
    assert set(bins.label([-100.0, *edges])) == set(names)
    assert all(name in str(bins) for name in names)
