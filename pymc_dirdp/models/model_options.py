"""What is said about a model of any discrete data, and the errors for what is not said or cannot be released."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import pymc as pm

from pymc_dirdp.checks import groups_of_names, integer, list_of_names, mapping_of_names, one_of
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.models.graph import (
    Node,
)
from pymc_dirdp.models.privacy_unit import NamedAxes, UnitOptions, people_axes, unit_axes
from pymc_dirdp.models.questions import Answer, OpenQuestionError, as_question
from pymc_dirdp.privacy.people import adjacency_by_name

TRIALS = ("Binomial", "Multinomial", "BetaBinomial", "DirichletMultinomial")
"""The distributions of which one observation is a number of trials, which may be those of as many people."""

NOISES = ("geometric", "gaussian", "joint")
"""The mechanisms whose likelihood is known; that of joint noise is for tables of one row with a public total."""


@final
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What is said about a model of any discrete data, checked. All of it is public.

    See :func:`pymc_dirdp.private_model` for each of them.
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
    # Whether these are answers that nobody gave, so that nothing private may be looked at for them.
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
                "With unit= an observation of a private model is that of one person with all its trials, so leave "
                "contribution= out; or leave unit= out if each trial is a record, of which a person holds so many."
            )
        one_of(("auto", *NOISES), mechanism=self.mechanism)
        adjacency_by_name(self.relation)

    @property
    def relation(self) -> AdjacencyName:
        """The adjacency, by default add-remove where the number of people is what is counted."""
        if self.adjacency is not None:
            return self.adjacency
        return "add-remove" if self.count_variables else "replace-one"

    @property
    def records_are_public(self) -> bool:
        """Whether the number of records is public: under replace-one."""
        return adjacency_by_name(self.relation).records_are_public

    @property
    def trials_are_people(self) -> bool:
        """Whether every trial of a Binomial or Multinomial is a record, of which a person holds `max_records`."""
        return not self.unit and self.contribution is not None

    @property
    def specifies_trials(self) -> bool:
        """Whether somebody has said what a person is where an observation has several trials."""
        return bool(self.unit) or self.contribution is not None

    @property
    def max_records(self) -> int:
        """How many records of each observed variable a person holds at most."""
        return self.contribution or 1

    @property
    def unit_options(self) -> UnitOptions:
        """What was said of people, in the words of :func:`pymc_dirdp.sample`."""
        return UnitOptions(unit=self.unit, contribution=self.contribution, adjacency=self.relation)

    def people_axes(self, rv: Node, model: pm.Model) -> tuple[int, ...] | None:
        """The batch axes of an observed variable whose entries are the people, in the order of `unit`.

        None without a `unit`: each observation is a person, or each trial (:attr:`trials_are_people`).

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
                f"{axes.name!r} has no {self.unit_options.unit_text}, so it is unknown who is behind its observations. "
                "Give it the dim, or release it by a model of its own."
            )
        return people

    def check_cells(self, name: str, cells: int, *, smaller: str = "Put values of covariates together") -> None:
        """Refuse a table of too many cells, with a way to a `smaller` one."""
        if cells > self.max_cells:
            raise model_refusal(
                name,
                f"has {cells} cells, which are more than max_cells={self.max_cells}, and the noise would swamp them",
                f"{smaller}, use fewer of them, or raise max_cells. Fewer cells than a fifth of the records is good "
                "advice.",
            )

    def is_public(self, name: str | None) -> bool:
        """Whether a covariate or number of trials was said to be public."""
        return self.public is True or (self.public is not False and name in self.public)


def model_refusal(name: str | None, why: str, way_out: str) -> UnsupportedModelError:
    """The error for a model that `private_model` cannot release."""
    return UnsupportedModelError(f"private_model cannot release this model: {name!r} {why}. {way_out}")


def model_question(name: str | None, why: str, way_out: str, *answers: Answer) -> OpenQuestionError:
    """The question about what has to be said of a model before `private_model` can release it."""
    return as_question(model_refusal(name, why, way_out), *answers)


def axes_of(rv: Node, model: pm.Model) -> NamedAxes:
    """The axes of an observed variable: by a dim, or by a number."""
    name, core = str(rv.name), core_of(rv)
    dims = model.named_vars_to_dims.get(name) or (None,) * rv.type.ndim
    names = tuple(axis if dim is None else dim for axis, dim in enumerate(dims))
    batch = len(names) - core
    return NamedAxes(name, names[:batch], tuple(axis for axis in names[batch:] if isinstance(axis, str)))


def core_of(rv: Node) -> int:
    """The number of axes of one observation."""
    op: Any = rv.owner.op
    return int(op.ndim_supp)
