"""The law of a table of classes and of features given the class, all together: a naive Bayes classifier."""

from collections.abc import Mapping
from typing import final

import numpy as np

from pymc_dirdp.inference.beliefs import Beliefs
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.inference.posterior import Draws
from pymc_dirdp.inference.seen import Seen, concluding
from pymc_dirdp.inference.table_law import TableLaw
from pymc_dirdp.progress import QUIET, Bar

__all__ = ["ClassLaw", "class_table"]


def class_table(tables: Mapping[str, Seen]) -> str | None:
    """The table whose cells are the rows of all others, by its name; None if there is no such table."""
    roots = [name for name, seen in tables.items() if seen.prior.ndim == 1 and seen.family == "dirichlet"]
    if len(tables) < 2 or len(roots) != 1 or any(seen.joint_rows is not None for seen in tables.values()):
        return None
    root = tables[roots[0]]
    if len(root.prior) == 1:
        # With one class there is nothing that the tables could tell each other.
        return None
    for name, seen in tables.items():
        if name != roots[0] and not (
            seen.prior.ndim == 2
            and seen.share_labels[0] == root.share_labels[0]
            and len(seen.prior) == len(root.prior)
            and seen.n_records == root.n_records
            and len(seen.blocks) < 2
        ):
            return None
    return roots[0]


@final
class ClassLaw:
    """Counts and shares of the classes and the features given what was put out of all of them.

    The rows of every feature add up to the counts of the classes. So what is put out of a feature has, for each class,
    a likelihood of its count, and the counts of the classes still follow a product law; given them all rows are
    independent (Theory, section 16).

    Parameters
    ----------
    tables : mapping of str to Seen
        All tables.
    classes : str
        The name of the table of the classes, from :func:`class_table`.
    beliefs : mapping of str to Beliefs
        By table. The number of records is the same for all.
    """

    def __init__(self, tables: Mapping[str, Seen], classes: str, beliefs: Mapping[str, Beliefs]) -> None:
        self._names, self._root, self._seen = tuple(tables), classes, tables[classes]
        self._features = {name: TableLaw(seen, beliefs[name]) for name, seen in tables.items() if name != classes}
        self._classes = TableLaw(tables[classes], beliefs[classes], tuple(self._features.values()))

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability or density of all that was put out, counts and shares summed out."""
        with concluding(self._seen):
            return self._classes.log_evidence

    def draw(self, draws: int, rng: np.random.Generator, bar: Bar = QUIET) -> dict[str, Draws]:
        """Independent draws of all tables, which agree: the rows of a feature add up to the counts of the classes."""
        with concluding(self._seen):
            drawn = {self._root: self._classes.draw(draws, rng)}
            bar.advance()
            for name, law in self._features.items():
                drawn[name] = law.draw_given(drawn[self._root].counts, rng)
                bar.advance()
        return {name: drawn[name] for name in self._names}

    def estimate(self, prob: list[float], bar: Bar = QUIET) -> dict[str, Estimate]:
        """Means, standard deviations and central intervals of shares and counts. The evidence is that of all tables."""
        with concluding(self._seen):
            found = {self._root: self._classes.estimate(prob)}
            bar.advance()
            for name, law in self._features.items():
                found[name] = law.estimate_given(self._classes.numbers, prob, self._classes.log_evidence)
                bar.advance()
        return {name: found[name] for name in self._names}
