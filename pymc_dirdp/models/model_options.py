"""Options for a model of any discrete data, and errors about missing options and models that cannot be released."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import pymc as pm

from pymc_dirdp.checks import groups_of_names, integer, list_of_names, mapping_of_names, one_of
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.models.graph import Node
from pymc_dirdp.models.privacy_unit import NamedAxes, UnitOptions, people_axes, unit_axes
from pymc_dirdp.models.questions import Answer, OpenQuestionError, as_question
from pymc_dirdp.privacy.people import adjacency_by_name

TRIALS = ("Binomial", "Multinomial", "BetaBinomial", "DirichletMultinomial")
"""The distributions whose observation is a number of trials, each of which may be another person."""

NOISES = ("geometric", "gaussian", "joint")
"""The mechanisms whose likelihood is known. Joint noise is for tables of one row with a public total."""


@final
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Checked options for a model of any discrete data. All of them are public.

    See :func:`pymc_dirdp.private_model` for their meaning.
    """

    public: Any = ()
    levels: Any = None
    count_variables: Any = ()
    jointly: Any = ()
    support: Any = None
    unit: Any = None
    contribution: int | None = None
    adjacency: AdjacencyName | None = None
    mechanism: str = "auto"
    weights: Mapping[str, float] | None = None
    disjoint: Iterable[Iterable[str]] | None = None
    max_cells: int = 10_000
    # Whether the library tries these options and you have not passed them, so that nothing private may be read.
    assumed: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        checked = {
            "public": self.public if isinstance(self.public, bool) else list_of_names(public=self.public),
            "levels": {
                key: integer(1, **{f"levels[{key!r}]": k}) for key, k in mapping_of_names(levels=self.levels).items()
            },
            "count_variables": list_of_names(count_variables=self.count_variables),
            "jointly": groups_of_names(jointly=self.jointly),
            "disjoint": None if self.disjoint is None else groups_of_names(disjoint=self.disjoint),
            "support": mapping_of_names(support=self.support),
            "unit": unit_axes(None if isinstance(self.unit, tuple) and not self.unit else self.unit),
            "contribution": None if self.contribution is None else integer(1, contribution=self.contribution),
            "max_cells": integer(2, max_cells=self.max_cells),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.unit and self.contribution is not None:
            raise ArgumentError(
                "Pass either unit= or contribution= to a private model. With unit=, an observation with all its trials "
                "is one person. With contribution=m, each trial is a record, and a person has at most m of them."
            )
        one_of(("auto", *NOISES), mechanism=self.mechanism)
        adjacency_by_name(self.relation)

    @property
    def relation(self) -> AdjacencyName:
        """The adjacency; by default add-remove if a variable counts people."""
        if self.adjacency is not None:
            return self.adjacency
        return "add-remove" if self.count_variables else "replace-one"

    @property
    def records_are_public(self) -> bool:
        """Whether the number of records is public: under replace-one."""
        return adjacency_by_name(self.relation).records_are_public

    @property
    def trials_are_people(self) -> bool:
        """Whether each trial of a Binomial or Multinomial is a record; a person has at most `max_records`."""
        return not self.unit and self.contribution is not None

    @property
    def specifies_trials(self) -> bool:
        """Whether the options define a person where an observation has several trials."""
        return bool(self.unit) or self.contribution is not None

    @property
    def max_records(self) -> int:
        """The maximum number of records of a person in each observed variable."""
        return self.contribution or 1

    @property
    def unit_options(self) -> UnitOptions:
        """The options about people, in the form of :func:`pymc_dirdp.sample`."""
        return UnitOptions(unit=self.unit, contribution=self.contribution, adjacency=self.relation)

    def people_axes(self, rv: Node, model: pm.Model) -> tuple[int, ...] | None:
        """The batch axes of an observed variable whose entries are the people, in the order of `unit`.

        None without a `unit`, where each observation or each trial (:attr:`trials_are_people`) is a person.

        Raises
        ------
        ArgumentError
            If the variable lacks an axis of the unit.
        """
        if not self.unit:
            return None
        axes = axes_of(rv, model)
        people = people_axes(axes, self.unit_options)
        if people is None:
            raise ArgumentError(
                f"{axes.name!r} lacks the axis of {self.unit_options.unit_text}, so it is unknown whose observations "
                "it has. Give it the dim, or release it in a model of its own."
            )
        return people

    def check_cells(self, name: str, cells: int, *, smaller: str = "Merge values of covariates") -> None:
        """Refuse a table of too many cells, and suggest how to make it `smaller`."""
        if cells > self.max_cells:
            raise model_refusal(
                name,
                f"has {cells} cells, more than max_cells={self.max_cells}, and the noise would swamp them",
                f"{smaller}, use fewer covariates, or raise max_cells. Fewer cells than a fifth of the records are "
                "best.",
            )

    def is_public(self, name: str | None) -> bool:
        """Whether a covariate or number of trials was declared public."""
        return self.public is True or (self.public is not False and name in self.public)


def model_refusal(name: str | None, why: str, way_out: str) -> UnsupportedModelError:
    """The error for a model that `private_model` cannot release."""
    return UnsupportedModelError(f"private_model cannot release this model: {name!r} {why}. {way_out}")


def model_question(name: str | None, why: str, way_out: str, *answers: Answer) -> OpenQuestionError:
    """The question about an option that `private_model` needs to release a model."""
    return as_question(model_refusal(name, why, way_out), *answers)


def axes_of(rv: Node, model: pm.Model) -> NamedAxes:
    """The axes of an observed variable, by their dims or numbers."""
    name, core = str(rv.name), core_of(rv)
    dims = model.named_vars_to_dims.get(name) or (None,) * rv.type.ndim
    names = tuple(axis if dim is None else dim for axis, dim in enumerate(dims))
    batch = len(names) - core
    return NamedAxes(name, names[:batch], tuple(axis for axis in names[batch:] if isinstance(axis, str)))


def core_of(rv: Node) -> int:
    """The number of axes of one observation."""
    op: Any = rv.owner.op
    return int(op.ndim_supp)
