"""What a neighbouring data set is, and the sensitivities that follow."""

from dataclasses import dataclass

from pymc_dirdp.checks import one_of

__all__ = ["ADJACENCIES", "Adjacency", "adjacency_named"]


@dataclass(frozen=True, kw_only=True)
class Adjacency:
    """A neighbouring relation on tables of counts.

    Attributes
    ----------
    name : str
        As users write it.
    statement : str
        What two neighbouring data sets are, in words.
    records_are_public : bool
        Whether the total number of records may be used and published.
    delta_2_squared : float
        Largest squared l2 distance of the counts of two neighbours.
    delta_1, delta_inf : float
        Largest l1 and l-infinity distances.

    References
    ----------
    Theory, section 1; P1 section 3.1; P2 Theorem 1.
    """

    name: str
    statement: str
    records_are_public: bool
    delta_2_squared: float
    delta_1: float
    delta_inf: float


ADJACENCIES = {
    relation.name: relation
    for relation in (
        Adjacency(
            name="replace-one",
            statement="one record moves from one cell to another; the number of records is public",
            records_are_public=True,
            delta_2_squared=2.0,
            delta_1=2.0,
            delta_inf=1.0,
        ),
        Adjacency(
            name="add-remove",
            statement="one record appears or disappears; the number of records is private",
            records_are_public=False,
            delta_2_squared=1.0,
            delta_1=1.0,
            delta_inf=1.0,
        ),
    )
}


def adjacency_named(adjacency: str) -> Adjacency:
    """The relation of this name, or an error that suggests the nearest one."""
    return ADJACENCIES[one_of(ADJACENCIES, adjacency=adjacency)]
