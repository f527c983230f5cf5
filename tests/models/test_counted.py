"""Observations of any model are counted one by one, and no error shows one."""

import itertools

import numpy as np
import pytest

from pymc_dirdp.errors import DataError
from pymc_dirdp.models.counted import AnswersReading, JointReading, NumbersReading, count_outcomes

SUPPORT = np.array([-2, 0, 5])


def reading(observed, *, name="y", questions=None, rows=None, levels=(), shape=None):
    """The reading of answers, with a row for each person."""
    rows = np.zeros(len(observed), dtype=np.int64) if rows is None else np.array(rows)
    n_rows = (int(rows.max(initial=0)) + 1) * int(np.prod([length for *_, length in levels]))
    n_labels = len(SUPPORT) if questions is None else int(np.prod(list(map(len, questions))))
    sources = tuple((label, lambda codes=codes: codes, length) for label, codes, length in levels)
    shape = shape or (n_rows, n_labels)
    return AnswersReading(name, lambda: np.array(observed), shape, SUPPORT, rows, 0, questions, sources)


def test_answers_are_counted_in_the_row_and_the_outcome_of_each_person():
    rng = np.random.default_rng(1)
    observed, rows, level = rng.choice(SUPPORT, 50), rng.integers(2, size=50), rng.integers(3, size=50)
    expected = np.zeros((6, 3), dtype=int)
    for value, row, code in zip(observed, rows, level, strict=True):
        expected[row * 3 + code, list(SUPPORT).index(value)] += 1
    counts = reading(observed, rows=rows, levels=[("group", level, 3)]).counts()
    assert np.array_equal(counts, expected)
    # Tables may have cells that nothing fills.
    (table,) = count_outcomes([(reading(observed), (4,))])
    assert table.tolist() == [*reading(observed).counts().ravel(), 0]


def test_answers_to_several_questions_are_combinations_in_their_order():
    questions = (np.array([0, 2]), np.array([0, 1, 2]))
    combinations = list(itertools.product(*questions))
    observed = SUPPORT[np.array(combinations)]
    assert np.array_equal(reading(observed, questions=questions).cells()[1], np.arange(6))
    assert reading(observed[:0], questions=questions).counts().tolist() == [[0] * 6]


def test_variables_of_the_same_people_are_combinations():
    first, second = [-2, 0, 5, 5], [5, 5, 0, -2]
    joint = JointReading("a_b", (reading(first), reading(second, rows=[0, 1, 1, 0])), (2, 9))
    rows, codes = joint.cells()
    assert rows.tolist() == [0, 1, 1, 0]
    assert codes.tolist() == [2, 5, 7, 6]
    assert joint.counts().sum() == 4
    with pytest.raises(DataError, match="not answers of the same people"):
        JointReading("a_b", (reading(first), reading(second[:3])), (1, 9)).cells()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (reading([0, 7919]), "Some observation"),
        (reading([0, np.nan]), "Some observation"),
        (reading(["0", "7919"]), "Some observation"),
        (reading([0, 5], levels=[("group", np.array([0, 7919]), 3)]), "Some code of 'group'"),
        (reading([0, 5], levels=[("group", np.array([0, -1]), 3)]), "Some code of 'group'"),
        (reading([[0, -2], [5, 5]], questions=(np.array([1]), np.array([0, 1]))), "Some answer"),
        (
            NumbersReading("y", lambda: np.array([7919, 3]), np.array([5, 5]), False, (), "int64"),
            "counts of its trials",
        ),
        (NumbersReading("y", lambda: np.array([[3, 3]]), np.array([5]), True, (), "int64"), "counts of its trials"),
        (NumbersReading("y", lambda: np.array([7919.5]), None, False, (), "int64"), "not all numbers of people"),
        (NumbersReading("y", lambda: np.array([-7919]), None, False, (), "int64"), "not all numbers of people"),
        (NumbersReading("y", lambda: np.array([7919]), None, False, (lambda x: -np.inf,), "int64"), "probability of 0"),
        (NumbersReading("y", None, None, False, (), "int64"), "cannot be computed"),
        (NumbersReading("y", lambda: 1 / 0, None, False, (), "int64"), "cannot be computed"),
    ],
)
def test_what_is_no_record_is_refused_and_not_shown(wrong, problem):
    with pytest.raises(DataError, match=problem) as caught:
        wrong.counts()
    assert "7919" not in str(caught.value)
    assert caught.value.__context__ is None


def test_numbers_of_people_are_counts():
    possible = (lambda x: np.where(x >= 0, -1.0, -np.inf),)
    assert NumbersReading("y", lambda: np.array([[3, 0]]), None, False, possible, "int64").counts().tolist() == [3, 0]
    successes = NumbersReading("y", lambda: np.array([3, 0]), np.array([5, 2]), False, (), "int64")
    assert successes.counts().tolist() == [[3, 2], [0, 2]]
    categories = NumbersReading("y", lambda: np.array([[3, 2], [0, 2]]), np.array([5, 2]), True, (), "int64")
    assert categories.counts().tolist() == [[3, 2], [0, 2]]
