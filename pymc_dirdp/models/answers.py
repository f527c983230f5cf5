"""Several answers of a person as one outcome: all combinations and their probabilities."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dirdp.models.graph import Node


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """The combinations of a person's answers to several questions, in the order of their table.

    Attributes
    ----------
    name : str
        The observed variable.
    values_by_question : tuple of array of int
        For each question, the values that its answer can take, as positions among the values of all questions.
    """

    name: str
    values_by_question: tuple[NDArray[np.int64], ...]

    @classmethod
    def from_logs(cls, name: str, logs: Sequence[NDArray[np.float64]]) -> Self:
        """The answers with a positive probability.

        Parameters
        ----------
        name : str
        logs : sequence of array, shape (rows, questions, values)
            Log-probabilities of the values at several points.
        """
        possible = np.any([np.isfinite(at_point).any(axis=0) for at_point in logs], axis=0)
        return cls(name, tuple(np.flatnonzero(values) for values in possible))

    @property
    def cells(self) -> int:
        """The number of combinations."""
        return math.prod(map(len, self.values_by_question))

    def labels(self, values: NDArray[np.int64]) -> tuple[str, ...]:
        """Labels of the combinations, such as "0,1,1"."""
        return tuple(
            ",".join(str(values[k]) for k in combination) for combination in itertools.product(*self.values_by_question)
        )

    def log_p(self, logs: Node) -> Node:
        """The log-probabilities of the combinations, from those of the values of each question.

        Given the variables in the log-probabilities, the answers of a person are independent.

        Parameters
        ----------
        logs : TensorVariable, shape (rows, questions, values)

        Returns
        -------
        log_p : TensorVariable, shape (rows, combinations)
        """
        log_probs: Any = logs
        total = pt.zeros((1, 1))
        for question, values in enumerate(self.values_by_question):
            # Add each question to all combinations of the earlier ones, so that each sum is formed once.
            total = (total[:, :, None] + log_probs[:, question, values][:, None, :]).reshape((log_probs.shape[0], -1))
        return total
