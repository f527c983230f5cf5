"""What results look like: one table as text, HTML and frame; labelled lines; nothing a terminal or a browser obeys."""

import pytest

from pymc_dirdp.display import Labelled, Tabular, aligned, visible

EVIL = "a\x1b[2J<b>\n\u202eb"


class Prices(Tabular):
    def __init__(self, rows, name="prices"):
        self.rows, self.name = rows, name

    def _told(self):
        return [self.name, "above"], self.rows, ["below"]


class Empty(Prices):
    _columns = ("what", "price")


class Letter(Labelled):
    def __init__(self, title, sections):
        self.title, self.sections = title, sections

    def _told(self):
        return self.title, self.sections


def test_a_table_is_text_html_and_a_frame():
    prices = Prices([{"what": "bread", "price": 1.23456}, {"what": "nothing at all", "price": 2}])
    assert str(prices).splitlines() == [
        "prices",
        "above",
        "what            price",
        "bread           1.235",
        "nothing at all  2",
        "below",
    ]
    assert prices._repr_html_() == (
        "<h4>prices</h4><p>above</p><table><tr><td>what</td><td>price</td></tr><tr><td>bread</td><td>1.235</td></tr>"
        "<tr><td>nothing at all</td><td>2</td></tr></table><p>below</p>"
    )
    frame = prices.frame()
    assert list(frame.index) == ["bread", "nothing at all"]
    assert frame["price"].tolist() == [1.23456, 2]


def test_columns_may_be_fewer_than_the_frame_has_and_rows_may_be_none():
    full = Empty([{"what": "bread", "weight": 5, "price": 1}])
    assert "weight" not in str(full) + full._repr_html_()
    assert list(full.frame().columns) == ["weight", "price"]
    assert str(Empty([])).splitlines()[2] == "what  price"
    assert len(Empty([]).frame()) == 0
    assert list(Empty([]).frame().columns) == ["price"]


@pytest.mark.parametrize(
    "shown",
    [
        Prices([{EVIL: EVIL}], EVIL),
        Letter(EVIL, [(EVIL, [(EVIL, EVIL)])]),
        Letter(EVIL, [("", [(EVIL, EVIL)])]),
    ],
)
def test_foreign_texts_are_made_safe(shown):
    assert all(line.isprintable() for line in str(shown).splitlines())
    assert shown._repr_html_().isprintable()
    assert "<b>" not in shown._repr_html_()
    assert "\\x1b[2J" in str(shown)


def test_labelled_lines_are_wrapped_beside_their_labels():
    text = " ".join(["word"] * 40)
    lines = str(Letter("Title", [("Head", [("long label", text), ("b", "short"), ("c", "")])])).splitlines()
    assert lines[:4] == ["Title", "=====", "", "Head"]
    assert lines[4].startswith("  long label  word word")
    assert lines[5].startswith("              word")
    assert max(map(len, lines)) <= 80
    assert lines[-2:] == ["  b           short", "  c           "]
    assert str(Letter("Title", [("", [("a", "b")])])) == "Title\n  a  b"
    html = Letter("Title", [("Head", [("a", "b")])])._repr_html_()
    assert html.count("<tr>") == 2
    assert "<th style='text-align:left'>a</th><td>b</td>" in html


def test_columns_of_text_begin_below_each_other():
    assert aligned([("a", "b"), ("long", "")]) == ["a     b", "long"]
    assert aligned([]) == []


@pytest.mark.parametrize("text", ["größe", "日本語", "C:\\temp", "'\""])
def test_what_can_be_seen_stays_as_it_is(text):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "seen"), [("\x1b", "\\x1b"), ("\n", "\\n"), ("\u202e", "\\u202e"), ("\ud800", "\\ud800")]
)
def test_what_cannot_be_seen_is_escaped(text, seen):
    assert visible(text) == seen
