"""Bins chosen from records: the ledger, people with several records, labels, the file, and what is refused."""

import json
import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, BudgetError, DataError
from pymc_dirdp.networks import choosing
from pymc_dirdp.sampling.drawing import EdgesDrawing

AGES = np.random.default_rng(4).gamma(4, 12, 3000)
CANDIDATES = range(1, 200)
PART = dirdp.ZeroCDP(rho=0.1)


def ledger(rho=1.0, adjacency="replace-one"):
    return dirdp.Ledger(dirdp.ZeroCDP(rho=rho), adjacency=adjacency)


def choose(records=None, **options):
    book = ledger(adjacency=options.get("adjacency", "replace-one"))
    given = {"n_bins": 4, "candidates": CANDIDATES, "ledger": book} | options
    return dirdp.choose_bins(PART, {"age": AGES} if records is None else records, "age", **given)


@pytest.fixture(scope="module")
def bins():
    return choose()


def test_the_bins_hold_about_equally_many_and_are_counted(bins):
    counts = dirdp.count({"age": bins.label(AGES)}, ["age"], categories={"age": bins.labels})
    assert counts.sum() == len(AGES)
    assert np.all(np.abs(counts - 750) < 350)
    # Oracle: each number against the edges of its bin.
    bounds = dict(zip(bins.labels, zip((-np.inf, *bins.edges), (*bins.edges, np.inf), strict=True), strict=True))
    for value, label in zip(AGES[:200], bins.label(AGES[:200]), strict=True):
        low, high = bounds[label]
        assert low <= value < high
    edge = bins.edges[0]
    assert bins.label([np.nextafter(edge, -np.inf), edge]).tolist() == list(bins.labels[:2])


def test_the_ledger_is_charged_what_the_choice_loses(bins):
    book = ledger()
    chosen = choose(ledger=book)
    assert chosen.mechanism.satisfies(PART)
    assert 0.999 * PART.rho < chosen.guarantee.rho <= PART.rho * 1.001
    assert book.spent["rho"] == pytest.approx(chosen.guarantee.rho, rel=1e-3)
    assert book.spent["rho"] >= chosen.mechanism.rho(math.inf) * (1 - 1e-12)
    assert [entry.what for entry in book.entries()] == ["the bins of age"]
    # What is released of the bins adds up in the same ledger.
    naive = dirdp.naive_bayes(
        {"age": chosen.label(AGES), "ill": np.where(AGES > 60, "yes", "no")},
        "ill",
        categories={"age": chosen.labels, "ill": ["no", "yes"]},
    )
    before = book.spent["rho"]
    dirdp.sample(dirdp.ZeroCDP(rho=0.2), naive, mechanism="geometric", ledger=book)
    assert book.spent["rho"] > before + 0.1
    with pytest.raises(BudgetError):
        choose(ledger=ledger(0.05))


def test_nothing_is_read_before_the_charge(monkeypatch):
    book = ledger()
    with pytest.raises(DataError, match="has been charged") as caught:
        choose({"age": [31.5, None]}, ledger=book)
    assert "31.5" not in str(caught.value)
    assert book.spent["rho"] > 0
    monkeypatch.setattr(choosing, "count_between", None)
    head = book.head
    for wrong in ({"candidates": [3, 2]}, {"n_bins": 1}, {"unit": "who"}, {"candidates": ["a", "b"]}):
        with pytest.raises(ArgumentError):
            choose(ledger=book, **wrong)
    with pytest.raises(ArgumentError, match="no column"):
        choose({"weight": AGES}, ledger=book)
    assert book.head == head


def test_people_with_several_records():
    records = {"age": AGES, "who": np.arange(len(AGES)) // 10}
    with pytest.raises(ArgumentError, match="add-remove"):
        choose(records, unit="who", contribution=3)
    chosen = choose(records, unit="who", contribution=3, adjacency="add-remove")
    assert (chosen.unit, chosen.mechanism.contribution) == ("who", 3)
    one = choose(records, unit="who", contribution=1, adjacency="add-remove")
    assert chosen.mechanism.scale == pytest.approx(3 * one.mechanism.scale, rel=1e-3)
    with pytest.raises(ArgumentError, match="another column"):
        choose(unit="age", contribution=1)


def test_a_person_with_ten_records_counts_as_often_as_is_said(monkeypatch):
    seen = []

    def drawn(self, tables):
        seen.extend(np.array(table.secret_cells) for table in tables)
        return (0,)

    monkeypatch.setattr(EdgesDrawing, "of", drawn)
    records = {"age": [5.0] * 10 + [50.0], "who": ["ann"] * 10 + ["bob"]}
    choose(records, candidates=[10, 60], unit="who", contribution=2, adjacency="add-remove")
    choose(records, candidates=[5, 50], adjacency="add-remove")
    assert [between.tolist() for between in seen] == [[2, 1, 0], [0, 10, 1]]


def test_columns_of_an_engine(tmp_path, monkeypatch):
    """The edges of a tight choice are those of the records in memory: it is the same counts that are scored."""
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = pl.DataFrame({"age": AGES})
    frame.write_parquet(tmp_path / "ages.parquet")
    seen = []

    def drawn(self, tables):
        seen.extend(table.secret_cells.tolist() for table in tables)
        return (0,)

    monkeypatch.setattr(EdgesDrawing, "of", drawn)
    for records in (None, frame.lazy(), duckdb.from_arrow(frame.to_arrow()), tmp_path / "ages.parquet"):
        choose(records)
    assert len(seen) == 4
    assert seen == seen[:1] * 4
    book = ledger()
    for wrong, said in (
        (frame.lazy().rename({"age": "years"}), "no column"),
        (tmp_path / "other.parquet", "other.parquet"),
    ):
        with pytest.raises(ArgumentError, match=said):
            choose(wrong, ledger=book)
    assert not book.entries()
    with pytest.raises(DataError, match="has been charged") as caught:
        choose(pl.LazyFrame({"age": ["31.5"]}), ledger=book)
    assert "31.5" not in str(caught.value)


def test_what_is_no_number_is_refused(bins):
    """Of the records after the charge, and of candidates before: an infinite edge made bins whose file was refused."""
    for wrong in ([1.0, math.nan], [1, None], ["a", "b"], [True, False], [10**400, 1], [[1.0], [2.0]]):
        with pytest.raises(DataError) as caught:
            choose({"age": wrong})
        # A frame of a context would hold the records.
        assert caught.value.__context__ is None
        with pytest.raises(DataError):
            bins.label(wrong)
    book = ledger()
    for candidates, said in (
        ([1.0, math.inf], "finite"),
        ([-math.inf, 1.0], "finite"),
        ([1, 10**400], "finite"),
        ([False, True], "numbers"),
        ([2**53, 2**53 + 1], "rising"),
        ([1.0, 1.0], "differ"),
    ):
        with pytest.raises(ArgumentError, match=said):
            choose(candidates=candidates, ledger=book)
    assert not book.entries()


def test_whether_a_ledger_holds_the_bins_has_to_be_said(bins):
    with pytest.raises(ArgumentError, match="ledger"):
        choose(ledger=1.0)
    with pytest.raises(TypeError, match="ledger"):
        dirdp.choose_bins(PART, {"age": AGES}, "age", n_bins=4, candidates=CANDIDATES)
    assert bins.recorded
    assert not choose(ledger=None).recorded
    with pytest.raises(DataError) as caught:
        choose({"age": [1.0, None]}, ledger=None)
    assert "charged" not in str(caught.value)


def test_a_seed_is_marked_and_candidates_of_data_are_warned_of(bins):
    with pytest.warns(dirdp.errors.SeededReleaseWarning, match="bins"):
        chosen = choose(random_seed=1)
    assert chosen.reproducible
    assert "NOT PRIVATE" in str(chosen)
    assert "NOT PRIVATE" not in str(bins)
    pd = pytest.importorskip("pandas")
    with pytest.warns(dirdp.errors.CategoriesFromDataWarning):
        choose(pd.DataFrame({"age": AGES}), candidates=pd.Series([30, 40]))
    shifted = {"age": pd.Series(AGES), "who": pd.Series(range(len(AGES)), index=range(1, len(AGES) + 1))}
    with pytest.raises(ArgumentError, match="indexes"):
        choose(shifted, unit="who", contribution=1)


def test_no_count_is_revealed(bins, numbers_in):
    """Neighbours with the same edges look the same, and no number of records stands anywhere."""
    again = dirdp.releases.Bins.from_dict(json.loads(json.dumps(bins.facts)))
    assert (str(again), repr(again), again._repr_html_()) == (str(bins), repr(bins), bins._repr_html_())
    assert 3000 not in numbers_in(str(bins) + repr(bins) + json.dumps(bins.facts))
