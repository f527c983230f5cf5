"""One refusal asks for all that is open: the search for a call ends, and what it offers was tried."""

import pytest

from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.privacy_unit import UnitOptions
from pymc_dirdp.models.questions import Answer, OpenQuestionError, read_or_ask

VERB = "dirdp.plan(guarantee, model"
NUMBERS = Answer({"public": ("n",)}, "if anybody may know it")
GROUPS = Answer({"disjoint": (("a",), ("b",))}, "if nobody is in both")
PERSON, HOUSE = Answer({"unit": ("person",)}), Answer({"unit": ("house",)})


def asked(*rules):
    """A reader that asks, in turn, what the rules say of what was said."""

    def read(said):
        for is_open, text, answers in rules:
            if is_open(said):
                raise OpenQuestionError(text, answers)
        return said

    return read


def test_nothing_is_asked_where_nothing_is_open():
    assert read_or_ask(asked(), UnitOptions(), VERB) == UnitOptions()


def test_all_questions_stand_in_one_refusal_with_one_call():
    read = asked(
        (lambda said: not said.unit, "Refused: who is it? Pass unit=.", [PERSON]),
        (lambda said: "n" not in said.public, "Refused: is n public? Pass public=.", [NUMBERS, GROUPS]),
        (lambda said: "x" not in said.public, "Refused: is x public? Pass public=.", [Answer({"public": ("x",)})]),
    )
    with pytest.raises(UnsupportedModelError) as caught:
        read_or_ask(read, UnitOptions(adjacency="add-remove", public=("m",)), VERB)
    assert not isinstance(caught.value, OpenQuestionError)
    assert caught.value.__suppress_context__
    *lines, call = str(caught.value).splitlines()
    assert lines[:3] == [
        "Refused: who is it? Pass unit=.",
        "Also: is n public? Pass public=.",
        "Also: is x public? Pass public=.",
    ]
    assert call == '    dirdp.plan(guarantee, model, unit="person", public=["m", "n", "x"], adjacency="add-remove")'


def test_other_answers_that_were_tried_are_named_in_words():
    read = asked((lambda said: said.public != ("n",) and not said.disjoint, "Refused: n?", [NUMBERS, GROUPS]))
    with pytest.raises(UnsupportedModelError) as caught:
        read_or_ask(read, UnitOptions(), VERB)
    assert "For example, if anybody may know it:\n" in str(caught.value)
    assert str(caught.value).endswith(
        'The first question may also be answered by disjoint=[["a"], ["b"]] if nobody is in both.'
    )


@pytest.mark.parametrize("kind", [UnsupportedModelError, ArgumentError])
def test_an_answer_that_leads_to_a_refusal_is_not_offered(kind):
    def read(said):
        if not said.public and not said.disjoint:
            raise OpenQuestionError("Refused: n?", [NUMBERS, GROUPS])
        if said.public:
            raise kind("Refused: no number is public.")
        return said

    with pytest.raises(UnsupportedModelError) as caught:
        read_or_ask(read, UnitOptions(), VERB)
    assert 'model, disjoint=[["a"], ["b"]])' in str(caught.value)
    assert "public=" not in str(caught.value)
    # Where no answer helps, the refusal itself is said.
    with pytest.raises(kind, match=r"^Refused: no number is public\.$"):
        read_or_ask(lambda said: read(said if said.public else UnitOptions(public=("n",))), UnitOptions(), VERB)


def test_no_answer_takes_another_one_back():
    """Found by a hanging test: two groups with people on other axes asked for each other's unit for ever."""
    read = asked(
        (lambda said: said.unit != ("person",), "Refused: who is a?", [PERSON]),
        (lambda said: said.unit != ("house",), "Refused: who is b?", [HOUSE]),
    )
    with pytest.raises(UnsupportedModelError, match=r"^Refused: who is a\?$"):
        read_or_ask(read, UnitOptions(), VERB)


def test_a_statement_that_changes_nothing_is_no_answer():
    read = asked((lambda _: True, "Refused: n?", [NUMBERS]))
    with pytest.raises(UnsupportedModelError, match=r"^Refused: n\?$"):
        read_or_ask(read, UnitOptions(public=("n",)), VERB)
