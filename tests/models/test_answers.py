"""Combinations of answers: their labels, their probabilities and their codes, beside loops over all of them."""

import itertools

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy.special import log_softmax

from pymc_dirdp.errors import DataError
from pymc_dirdp.models.answers import Answers


def test_combinations_are_those_of_a_loop():
    logs = log_softmax(np.random.default_rng(1).normal(size=(4, 3, 3)), axis=-1)
    logs[:, 0, 1] = -np.inf
    answers = Answers.from_logs("y", [logs])
    values = np.array([-2, 0, 5])
    combinations = list(itertools.product([0, 2], [0, 1, 2], [0, 1, 2]))
    assert answers.cells == len(combinations)
    assert answers.labels(values) == tuple(",".join(str(values[k]) for k in own) for own in combinations)
    expected = [[sum(row[question, k] for question, k in enumerate(own)) for own in combinations] for row in logs]
    np.testing.assert_allclose(answers.log_p(pt.constant(logs)).eval(), expected, rtol=1e-14)
    np.testing.assert_array_equal(answers.codes(np.array(combinations)), np.arange(len(combinations)))


def test_a_value_that_is_possible_at_some_point_is_an_answer():
    never, sometimes = np.array([[[0.0, -np.inf, -np.inf]]]), np.array([[[0.0, -np.inf, -1.0]]])
    assert Answers.from_logs("y", [never, sometimes]).values_by_question[0].tolist() == [0, 2]


def test_an_answer_without_a_probability_is_no_answer():
    answers = Answers("y", (np.array([0, 2]), np.array([0, 1])))
    for wrong in ([1, 0], [3, 0], [0, 2]):
        with pytest.raises(DataError, match="Some answer in 'y'") as refusal:
            answers.codes(np.array([[0, 1], wrong]))
        assert not any(character.isdigit() for character in str(refusal.value).replace("of 0", ""))


def test_nobody_has_no_code():
    assert Answers("y", (np.arange(2), np.arange(3))).codes(np.zeros((0, 2), dtype=int)).size == 0
