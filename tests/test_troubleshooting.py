"""The page of errors by their text: each heading is a text of the package, and each class of errors is explained."""

import ast
import re

import pytest

from pymc_dirdp import errors
from tests.sources import FILES, ROOT, texts_in, texts_of

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
TEXTS = [text for path in FILES for text in texts_of(path)]


def occurs(heading, texts):
    """Whether the parts of a heading stand in one text, in their order."""
    parts = re.compile(".*".join(re.escape(part.strip()) for part in heading.split("…")), re.DOTALL)
    return any(parts.search(text) for text in texts)


@pytest.mark.parametrize("heading", HEADINGS)
def test_each_heading_is_a_text_of_the_package(heading):
    assert occurs(heading, TEXTS)


def test_a_text_that_is_gone_is_seen():
    texts = list(texts_in(ast.parse('raise ValueError(f"The column {name!r} holds {n} texts.")')))
    assert occurs("The column … holds", texts)
    assert not occurs("The column … has", texts)
    assert not occurs("holds … The column", texts)


def test_each_error_and_warning_is_explained():
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert len(classes) > 15
    assert {name for name in classes if f"`{name}`" not in PAGE} == set()


def test_each_heading_has_a_class_with_why_and_a_line_of_what_to_do():
    for entry in re.split(r"^#+ ", PAGE, flags=re.MULTILINE):
        if (heading := entry.splitlines()[:1]) and heading[0] in HEADINGS:
            _, why, what, *more = entry.strip().split("\n\n")
            assert re.match(r"`\w+(Error|Warning)`\. [A-Z`]", why), heading
            assert what[0].isupper(), heading
            assert not more, heading
