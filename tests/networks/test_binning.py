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
    ends = [-np.inf, *bins.edges, np.inf]
    for value, label in zip(AGES[:200], bins.label(AGES[:200]), strict=True):
        place = bins.labels.index(label)
        assert ends[place] <= value < ends[place + 1]
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
    with pytest.raises(BudgetError):
        choose(ledger=ledger(0.05))


def test_wrong_arguments_are_refused_before_the_charge_and_records_after_it(monkeypatch, bins):
    """An infinite edge made bins whose file was refused."""
    for wrong in ([31.5, None], [1.0, math.nan], ["a", "b"], [True, False], [10**400, 1], [[1.0], [2.0]]):
        book = ledger()
        with pytest.raises(DataError, match="has been charged") as caught:
            choose({"age": wrong}, ledger=book)
        # A frame of a context would hold the records.
        assert caught.value.__context__ is None
        assert "31.5" not in str(caught.value)
        assert book.spent["rho"] > 0
        with pytest.raises(DataError):
            bins.label(wrong)
    monkeypatch.setattr(choosing, "count_between", None)
    book = ledger()
    for options, said in (
        ({"candidates": [3, 2]}, "rising"),
        ({"candidates": [2**53, 2**53 + 1]}, "rising"),
        ({"candidates": [1.0, 1.0]}, "differ"),
        ({"candidates": ["a", "b"]}, "numbers"),
        ({"candidates": [False, True]}, "numbers"),
        ({"candidates": [1.0, math.inf]}, "finite"),
        ({"candidates": [1, 10**400]}, "finite"),
        ({"n_bins": 1}, "n_bins"),
        ({"unit": "who"}, "together"),
        ({"unit": "age", "contribution": 1}, "another column"),
        ({"records": {"weight": AGES}}, "no column"),
    ):
        with pytest.raises(ArgumentError, match=said):
            choose(ledger=book, **options)
    assert not book.entries()


@pytest.fixture
def seen(monkeypatch):
    """The counts between candidates that a choice was made from; the first candidate is chosen."""
    found = []

    def drawn(self, tables):
        found.extend(table.secret_cells.tolist() for table in tables)
        return (0,)

    monkeypatch.setattr(EdgesDrawing, "of", drawn)
    return found


def test_a_person_with_ten_records_counts_as_often_as_is_said(seen):
    records = {"age": [5.0] * 10 + [50.0], "who": ["ann"] * 10 + ["bob"]}
    with pytest.raises(ArgumentError, match="add-remove"):
        choose(records, unit="who", contribution=2)
    two, one = (
        choose(records, candidates=[10, 60], unit="who", contribution=n, adjacency="add-remove") for n in (2, 1)
    )
    assert (two.unit, two.mechanism.contribution) == ("who", 2)
    assert two.mechanism.scale == pytest.approx(2 * one.mechanism.scale, rel=1e-3)
    choose(records, candidates=[5, 50], adjacency="add-remove")
    assert seen == [[2, 1, 0], [1, 1, 0], [0, 10, 1]]


def test_columns_of_an_engine(tmp_path, seen):
    """The edges of a tight choice are those of the records in memory: it is the same counts that are scored."""
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = pl.DataFrame({"age": AGES})
    frame.write_parquet(tmp_path / "ages.parquet")
    for records in (None, frame.lazy(), duckdb.from_arrow(frame.to_arrow()), tmp_path / "ages.parquet"):
        choose(records)
    assert len(seen) == 4
    assert seen == seen[:1] * 4
    with pytest.raises(ArgumentError, match=r"other\.parquet"):
        choose(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="has been charged"):
        choose(pl.LazyFrame({"age": ["31.5"]}))


def test_a_seed_is_marked_and_candidates_of_data_are_warned_of(bins, numbers_in):
    with pytest.warns(dirdp.errors.SeededReleaseWarning, match="bins"):
        chosen = choose(random_seed=1)
    assert chosen.reproducible
    assert "NOT PRIVATE" in str(chosen)
    assert "NOT PRIVATE" not in str(bins)
    assert bins.recorded
    assert not choose(ledger=None).recorded
    assert 3000 not in numbers_in(f"{bins}{bins!r}{bins._repr_html_()}{json.dumps(bins.facts)}")
    pd = pytest.importorskip("pandas")
    with pytest.warns(dirdp.errors.CategoriesFromDataWarning):
        choose(pd.DataFrame({"age": AGES}), candidates=pd.Series([30, 40]))
    shifted = {"age": pd.Series(AGES), "who": pd.Series(range(len(AGES)), index=range(1, len(AGES) + 1))}
    with pytest.raises(ArgumentError, match="indexes"):
        choose(shifted, unit="who", contribution=1)
