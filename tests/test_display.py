"""What results look like: one table as text, HTML and frame; labelled lines; nothing a terminal or a browser obeys."""

import re
import unicodedata

import numpy as np
import pytest

from pymc_dirdp.display import LabelledResult, TabularResult, align_columns, escape_invisible, number_and_interval

EVIL = "a\x1b[2J<b>\n\u202eb"


class Prices(TabularResult):
    def __init__(self, rows, name="prices"):
        self.rows, self.name = rows, name

    def _parts(self):
        return [self.name, "above"], self.rows, ["below"]


class Empty(Prices):
    _columns = ("what", "price")


class Letter(LabelledResult):
    def __init__(self, title, sections):
        self.title, self.sections = title, sections

    def _parts(self):
        return self.title, self.sections


def test_a_table_is_text_html_and_a_frame():
    prices = Prices([{"what": "bread", "price": 1.23456}, {"what": "nothing at all", "price": 2}])
    rows = ["what            price", "bread           1.235", "nothing at all  2"]
    assert str(prices).splitlines() == ["prices", "above", *rows, "below"]
    style = " style='text-align:left;vertical-align:top;padding:0.2em 1em 0.2em 0'"
    assert prices._repr_html_().replace(style, "") == (
        "<h4>prices</h4><p>above</p><div style='overflow-x:auto'><table><tr><th>what</th><th>price</th></tr>"
        "<tr><td>bread</td><td>1.235</td></tr><tr><td>nothing at all</td><td>2</td></tr></table></div><p>below</p>"
    )
    frame = prices.frame()
    assert list(frame.index) == ["bread", "nothing at all"]
    assert frame["price"].tolist() == [1.23456, 2]


def test_columns_may_be_fewer_than_the_frame_has_and_rows_may_be_none():
    full = Empty([{"what": "bread", "weight": 5, "price": 1}])
    assert "weight" not in str(full) + full._repr_html_()
    assert list(full.frame().columns) == ["weight", "price"]
    assert str(Empty([])).splitlines()[2] == "what  price"
    assert (len(Empty([]).frame()), list(Empty([]).frame().columns)) == (0, ["price"])


def test_foreign_texts_are_made_safe():
    for shown in (Prices([{EVIL: EVIL}], EVIL), Letter(EVIL, [(EVIL, [(EVIL, EVIL)]), ("", [(EVIL, EVIL)])])):
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
    assert ">a</th><td style='text-align:left;vertical-align:top;min-width:10em'>b</td>" in html
    assert "overflow-wrap:anywhere" in html


@pytest.mark.parametrize("name", ["p" * 300, "a rather long name " * 20, "日本語" * 60, "e\u0301" * 70, "\x1b" * 90])
def test_no_line_is_wider_than_a_terminal_whatever_the_names(name):
    """Oracle: unicodedata, sign by sign; and nothing of the text is lost."""
    lines = str(Letter(name, [(name, [(name, name), ("b", "short")])])).splitlines()
    wide = [sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in line) for line in lines]
    assert max(wide) <= 80
    assert max(wide[4:]) > 70
    assert "".join("".join(lines[: lines.index("", 1)]).split()).startswith("".join(escape_invisible(name).split()))
    # The label has 24 columns, and the text the other 52.
    assert "".join(line[2:26] for line in lines if "short" not in line).count(escape_invisible(name)[:3]) > 1


def test_what_cannot_be_seen_is_escaped_and_a_repr_is_one_line():
    for text in ("größe", "日本語", "C:\\temp", "'\""):
        assert escape_invisible(text) == text
    for text in ("\x1b", "\n", "\u202e", "\ud800"):
        assert escape_invisible(text) == text.encode("unicode_escape", "surrogatepass").decode()
    assert align_columns([("a", "b"), ("long", "")]) == ["a     b", "long"]
    assert align_columns([]) == []
    rows = [{"what": "bread", "price": 1}]
    assert repr(Prices(rows)) == "<Prices: prices; 1 rows: print() shows them, frame() has them>"
    assert repr(Letter("dear reader", [("", [("a", "b")])])) == "<Letter: dear reader; print() shows it>"
    for one in (Prices([], EVIL * 200), Letter(EVIL * 200, [])):
        assert repr(one).isprintable()
        assert len(repr(one)) < 140


def test_a_printed_number_lies_in_its_printed_interval_and_shows_two_digits_of_its_deviation():
    rng = np.random.default_rng(7)
    for _ in range(600):
        sd = 10 ** rng.uniform(-9, 6)
        value = rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 9)
        low, high = value - sd * rng.exponential(2), value + sd * rng.exponential(2)
        if rng.random() < 0.5:
            low, high = np.floor(low), np.ceil(high)
        shown = Prices([dict(zip(("number", "interval"), number_and_interval(value, sd, low, high), strict=True))])
        for text in (str(shown), re.sub("<.*?>", " ", shown._repr_html_().replace("&nbsp;", " "))):
            number, deviation, least, most = re.search(r"([-.\d]+) ± ([.\d]+)\D+?([-.\d]+) to ([-.\d]+)", text).groups()
            assert float(least) <= float(number) <= float(most)
            assert float(deviation) == pytest.approx(sd, rel=0.051)
            assert abs(float(number) - value) <= 0.051 * sd
    # All digits before the point are shown.
    assert "100057" in str(Prices([{"what": "records", "number": 100057.4}]))
