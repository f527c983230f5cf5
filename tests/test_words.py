"""The words of the public text are those of statistics and differential privacy; a glossary page explains them."""

import ast
import re
import tokenize
from functools import cache

from pymc_dirdp.errors import missing_values
from tests.sources import FENCED, FILES, PACKAGE, PAGES, ROOT, docstrings, rows_of, texts_of, tree_of

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
# Turns of phrase carried over from another language, in pages, docstrings and errors, and what the field says.
PHRASES = {
    r"books? (?:it|them)|booked": "records, recorded",
    r"seldom": "rarely",
    r"without more(?=[ .,]*(?:the|a|it|[.,]))": "by default",
    r"while (?:people|visitors|they) come": "as visitors arrive",
    r"as often as (?:it|they) (?:says?|claims?)": "with nominal coverage",
    r"(?:hold|holds|holding) (?:the truth|what (?:it|they) says?)": "cover the true value, have nominal coverage",
    r"keep(?:s|ing)? (?:an?|the|its|their|this|one|no|pure|every)(?: \w+)? (?:guarantees?|privacy|epsilon)": "satisfy",
    r"(?:keep|keeps|keeping) (?:epsilon\b|\(\d)": "satisfy",
    r"as likely as (?:one another|another)": "uniform",
    r"worth as many": "effective sample size",
    r"too sure": "overconfident; intervals that are too narrow",
    r"in the place of": "instead of",
    r"err(?:s|ing)? (?:the )?least": "has the smallest error",
    r"(?:tell|tells|telling|told) (?:\w+ )?apart": "distinguish",
    r"noise and all": "accounting for the noise",
}
# An argument is passed. Its name is code, so this is looked for in the raw text.
SAID = re.compile(r"\bsay `?[a-z_]+=(?!=)", re.IGNORECASE)
# Code, addresses and quotations are no text of ours: names of the library, titles of papers and outputs of programs.
_NO_TEXT = re.compile(r"`[^`\n]*`|\]\([^)]*\)|https?://\S+|^> .*$", re.MULTILINE)


# The safety margin of a computation is no marginal; effective records are an attribute.
IN_CODE = {
    word: field for word, field in WORDS.items() if word not in {"margins?(?! of error)", "effective records"}
} | CODE_WORDS
PATTERNS = {
    name: re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    for name, words in {"prose": WORDS, "code": IN_CODE, "phrases": PHRASES}.items()
}


def prose_of(text):
    return _NO_TEXT.sub("", FENCED.sub("", text))


@cache
def found(text, where="prose"):
    return [match[0] for match in PATTERNS[where].finditer(prose_of(text))]


def phrases(text):
    """What sounds carried over from another language, on one line each."""
    return [*found(re.sub(r"\s+", " ", prose_of(text)), "phrases"), *SAID.findall(text)]


def test_pages_use_the_words_of_the_field():
    for name, text in PAGES.items():
        if not name.startswith(("docs/proofs/", "CODE")):
            assert found(text) + phrases(text) == [], name


def test_docstrings_and_errors_use_the_words_of_the_field():
    for path in FILES:
        for text in docstrings(path):
            # A parameter may be called by another word than the text uses.
            assert found(re.sub(r"^\s*[\w*, ]+ : .*$", "", text, flags=re.MULTILINE)) == [], path
        for text in (*docstrings(path), *texts_of(path)):
            assert phrases(text) == [], path
    assert found((PACKAGE / "errors.py").read_text(encoding="utf-8")) == []


def test_the_lint_finds_phrases():
    for text in (
        *("A ledger books it.", "If rewards are seldom,", "Without more the guarantee is about one reward."),
        *("It learns while people come.", "They hold the truth.", "as often as they say", "It keeps a guarantee."),
        *("It keeps\n    the stated guarantee.", "It keeps (1, 1e-6).", "all as likely as one another"),
        *("so as many are worth as many", "far too sure", "in the place of it", "which errs least", "told apart"),
        *("Say `unit=` for people.", "Say unit=0."),
    ):
        assert phrases(text), text


def test_names_and_comments_use_the_words_of_the_field():
    for path in (*FILES, *sorted((ROOT / "tests").rglob("*.py"))):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type in (tokenize.NAME, tokenize.COMMENT):
                    words = token.string.replace("_", " ").lower() if token.type == tokenize.NAME else token.string
                    assert not found(words, "code"), (path, token.start, token.string)


# Pronouns and participles say nothing about what a name stands for.
NO_NAMES = frozenset(
    """said wanted found given seen own one each some such called told took settled mine here there many more less both
    either never again now""".split()  # noqa: SIM905  # It is read as a sentence is.
)


def bound_names(tree):
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_names_are_nouns_and_verbs():
    for path in FILES:
        names = bound_names(tree_of(path))
        assert [(line, name) for line, name in names if name.lstrip("_") in NO_NAMES] == [], path
    source = "class said:\n found: int\n def own(self, each, *, given=1):\n  self.seen = [one for one in each]"
    names = {name for _, name in bound_names(ast.parse(source)) if name in NO_NAMES}
    assert names == {"said", "found", "own", "each", "given", "one", "seen"}


def test_the_lint_finds_words_in_prose_alone_and_passes_others():
    for text in ("It satisfies the guarantee.", "without more noise", "keep the file", "say `x` if x == 1", "`seldom`"):
        assert not phrases(text), text
    for text in (missing_values(), "Leave counts= out.", "Leave it out."):
        assert list(advised(text)) == [], text
    assert found("The law of a draw, and laws.") == ["law", "laws"]
    assert found("Whoever promised whole numbers") == ["Whoever", "promised", "whole numbers"]
    assert found("kept margins, a held-out margin and a safety margin", "code") == ["kept", "margins", "margin"]
    assert found("```python\nlaw = 1\n```\n`law` [x](law.md) lawn") == []


# The ways out of errors, beside the page of lines that leak: nobody who follows a way out may write one of those.

# What is in a cell of that table, and the words by which an error would advise it. All cells are here.
LEAKS = {
    "`s.value_counts()` for labels and counts": r"value_counts",
    '`s.unique()`, `s.astype("category")`, `pd.factorize(s)`': r"\bunique\(|factorize|astype\(.category|"
    r"\b(?:take|read|infer|derive|get)\b[^.;]*\b(?:categories|labels|values)\b[^.;]*\b(?:from|off) the "
    r"(?:data|records)",
    "`pd.crosstab(a, b)`, `groupby(...).size()`": r"crosstab|groupby|group_by",
    "`pd.crosstab(..., margins=True)`": r"\bmargins\b",
    "`pd.cut(x, bins=10)`, `pd.qcut(x, 10)`": r"\bq?cut\(|\bquantiles? of (?:the|your) (?:data|records|column)",
    "`df.dropna()`, `n=len(df)` after a filter on answers": r"dropna|\blen\(|"
    r"\b(?:drop|delete|remove|exclude|skip|discard|ignore|omit|filter|leave)\b(?: out)? "
    r"(?:them|these|those|(?:(?:the|all|these|those|such|their|missing|empty) )*"
    r"(?:records?|rows?|lines?|people|persons?|units|entries|answers|observations|values)\b)",
}
# Sentences with those words that advise no leak, and why.
NO_LEAKS = {
    "Do not take the categories from the data": "it advises against it",
    "descend along the dim": "it warns of it",
    "Rename it, or leave them out": "these are characters of a name",
    "if anybody may know them, or leave them out": "these are covariates of a model",
    "Leave records out; n_records in [options]": "this is the name of an option",
    "Leave these arguments out": "these are arguments",
    "Leave them out, there and in the records": "these are characters of labels",
}
# Under add-remove, a rule that looks at one record at a time may leave it out: neighbours stay neighbours.
RECORDS = 'adjacency="add-remove"'


def advised(text):
    for sentence in re.split(r"(?<=\.)\s", text):
        harmless = " " not in sentence or RECORDS in sentence or any(said in sentence for said in NO_LEAKS)
        if not harmless and re.search("|".join(LEAKS.values()), sentence, re.IGNORECASE):
            yield sentence


def test_no_way_out_is_a_line_that_leaks():
    assert [line for line, _ in rows_of(PAGES["docs/quickstart.md"], "do not write")] == list(LEAKS)
    assert {sentence: path.name for path in FILES for text in texts_of(path) for sentence in advised(text)} == {}
    for text in (
        "Drop these records, or make `missing` a category of its own.",
        "It is unknown whose these records are. Drop them.",
        "It holds missing values. Drop those records, or count them in a category of their own.",
        "Leave these records out, or give them a category.",
        "Leave records out, or plan for more.",
        *("Use df.dropna() first.", "Pass n=len(df).", "Remove all rows with missing values."),
        *("Read the categories off the data.", "Pass categories=df.x.unique().", 'Write s.astype("category").'),
        *("Count by pd.crosstab(a, b, margins=True).", "Divide it by pd.qcut(x, 10)."),
        "Pass the counts of s.value_counts().",
    ):
        assert len(list(advised(text))) == 1, text


def test_missing_values_have_one_sentence():
    """Wherever an error is about missing values, its way out is that of `missing_values`, or a declared label."""
    ways = missing_values.__name__, "refusal('missing values'", "otherwise=", "perhaps by a capital letter"
    for path in FILES:
        if "missing values" not in path.read_text(encoding="utf-8"):
            continue
        for node in ast.walk(tree_of(path)):
            text = ast.unparse(node) if isinstance(node, ast.Raise | ast.Return | ast.Call) else ""
            of_error = not isinstance(node, ast.Call) or re.match(r"(?:\w+Error|Refusal|refused)\(", text)
            assert not of_error or "missing values" not in text or any(way in text for way in ways), (path, text)
