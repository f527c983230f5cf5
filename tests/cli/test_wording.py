"""Errors of functions in the words of a declaration."""

import re

import pytest

from pymc_dirdp.cli.wording import as_commands, in_a_declaration


@pytest.mark.parametrize(
    ("of_python", "of_command"),
    [
        ("Add adjacency='add-remove'.", "Declare adjacency = 'add-remove'."),
        ("Expected draws=0 to be positive.", "Expected draws = 0 to be positive."),
        ("got a str and an int, not a list", "got a text and an integer, not a list"),
        ("Leave unit= out.", "Leave unit in [people] out."),
        ("Pass an n_prior for it.", "Pass an --n-prior for it."),
        ("categories['hair'] has", "categories of [variables.hair] has"),
        (
            "declare a label, as in otherwise={'hair': 'unknown'}.",
            'declare a label, as in otherwise = "unknown" in its section of [variables].',
        ),
        (
            "See dirdp.verify, or dirdp.plan(guarantee, model).",
            "See the command verify, or the command plan.",
        ),
        ("No. For example: dirdp.sample(x, y=3)", "No."),
        ("Write n = 3 and epsilon 2.", "Write n = 3 and epsilon 2."),
    ],
)
def test_words(of_python, of_command):
    assert in_a_declaration(of_python) == of_command
    # What is in these words stays as it is.
    assert in_a_declaration(of_command) == of_command


def test_what_to_do_next_is_a_command():
    assert not re.search(r"dirdp\.\w", as_commands("print(dirdp.verify(release).full) ledger.remaining()"))
