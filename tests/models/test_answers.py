"""Combinations of answers: their labels and their probabilities, beside loops over all of them."""

import itertools

import numpy as np
import pytensor.tensor as pt
from scipy.special import log_softmax

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


def test_a_value_that_is_possible_at_some_point_is_an_answer():
    never, sometimes = np.array([[[0.0, -np.inf, -np.inf]]]), np.array([[[0.0, -np.inf, -1.0]]])
    assert Answers.from_logs("y", [never, sometimes]).values_by_question[0].tolist() == [0, 2]
