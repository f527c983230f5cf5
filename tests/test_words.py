"""The words of the public text are those of statistics and differential privacy; a glossary page explains them."""

import ast
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# A home-made word, and what the field says.
WORDS = {
    r"laws?(?! of large numbers)": "distribution",
    r"promis(?:e|es|ed|ing)": "guarantee",
    r"put(?:s|ting)? out": "output",
    r"whole (?:numbers?|noise)": "integer",
    r"margins?(?! of error)": "marginal",
    r"knows? (?:about|of) the noise": "credible interval, which accounts for the privacy noise",
    r"conclud(?:e|es|ed|ing)|conclusions?": "infer, inference",
    r"effective records": "effective sample size",
    r"drawn to 0": "shrunk",
    r"whoever|whomever": "anyone who",
    r"crowds?": "group",
    r"made again": "rebuilt",
    r"read as data": "treated as the data",
}
# Names and comments say what a thing is, so these are none of them either.
CODE_WORDS = {
    r"held(?!.out)": "records, observed, covered, compared",
    r"kept": "retained, accepted, cached, selected",
    r"told": "stated, distinguished, known",
    r"moved": "shifted, reordered, changed",
    r"(?<!safety )margins?": "marginal; or safety margin",
}
# Code, addresses and quotations are no text of ours: names of the library, titles of papers and outputs of programs.
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_NO_TEXT = re.compile(r"`[^`\n]*`|\]\([^)]*\)|https?://\S+|^> .*$", re.MULTILINE)


def found(text, words=WORDS):
    pattern = rf"\b(?:{'|'.join(words)})\b"
    return [match[0] for match in re.finditer(pattern, _NO_TEXT.sub("", _FENCED.sub("", text)), re.IGNORECASE)]


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "proofs" not in path.parts),
]


def test_pages_use_the_words_of_the_field():
    for path in PAGES:
        assert found(path.read_text(encoding="utf-8")) == [], path


def docstrings(path):
    """The docstrings of a file, without examples, whose output may quote names of the library."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield (ast.get_docstring(node) or "").partition("\nExamples\n")[0]


def test_docstrings_use_the_words_of_the_field():
    for path in sorted((ROOT / "pymc_dirdp").rglob("*.py")):
        for text in docstrings(path):
            # A parameter may be called by another word than the text uses.
            prose = re.sub(r"^\s*[\w*, ]+ : .*$", "", text, flags=re.MULTILINE)
            assert found(prose) == [], path


def test_errors_and_warnings_are_clean():
    source = (ROOT / "pymc_dirdp" / "errors.py").read_text(encoding="utf-8")
    assert found(source) == []


# The safety margin of a computation is no marginal; effective records are an attribute.
_IN_CODE = {
    word: field for word, field in WORDS.items() if word not in {"margins?(?! of error)", "effective records"}
} | CODE_WORDS


def test_names_and_comments_use_the_words_of_the_field():
    for path in sorted([*(ROOT / "pymc_dirdp").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.NAME:
                    words = found(token.string.replace("_", " ").lower(), _IN_CODE)
                elif token.type == tokenize.COMMENT:
                    words = found(token.string, _IN_CODE)
                else:
                    continue
                assert not words, (path, token.start, token.string)


def test_the_lint_finds_words_in_prose_alone():
    assert found("The law of a draw, and laws.") == ["law", "laws"]
    assert found("Whoever promised whole numbers") == ["Whoever", "promised", "whole numbers"]
    assert found("kept margins, a held-out margin and a safety margin", CODE_WORDS) == ["kept", "margins", "margin"]
    assert found("```python\nlaw = 1\n```\n`law` [x](law.md) lawn") == []
