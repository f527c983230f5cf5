"""The plan of a release of any model: its tables, their cells, and the noise on each."""

from dataclasses import dataclass
from typing import Any, final, override

import pymc as pm

from pymc_dirdp.checks import refuse_unknown
from pymc_dirdp.display import TabularResult
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.models.whose_records import refuse_lost_unit
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.model_tables import plan_tables, read_model_or_ask
from pymc_dirdp.releases.plan import ModelPlanning
from pymc_dirdp.releases.plan_types import Plan


@final
@dataclass(frozen=True, eq=False, repr=False)
class ModelPlan(TabularResult):
    """The plan of a release of a model of any discrete data: its tables and the noise on their cells.

    The plan is public, because no record was read. Print it, display it in a notebook, or use `frame()`. Pass it to
    :func:`pymc_dirdp.private_model` instead of a guarantee.

    Attributes
    ----------
    tables : Plan
        The plan of the released tables, which have the names of the observed variables. It can be saved.
    options : ModelOptions
        The options of the model.
    cells : dict of str to int
        The number of cells of the table of each observed variable.
    integrated : tuple of str
        The free variables with an entry for each person. The private model integrates them out.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 0.2, shape=3)
    ...     cases = pm.Poisson("cases", rate, observed=[3, 0, 5])
    >>> chosen = dirdp.plan(dirdp.PureDP(epsilon=1.0), model, any_model=True, count_variables=["cases"])
    >>> chosen.cells
    {'cases': 3}
    >>> private = dirdp.private_model(chosen, model)
    """

    tables: Plan
    options: ModelOptions
    cells: dict[str, int]
    integrated: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ModelPlan({self.tables!r}, {sum(self.cells.values())} cells)"

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        header = [f"Plan of a private model, {self.tables.guarantee}, {self.tables.adjacency}"]
        rows = [
            {
                "table": part.table.name,
                "cells": self.cells[part.table.name],
                "noise": part.mechanism.kind,
                "sd on each": part.mechanism.noise_sd or 0.0,
            }
            for part in self.tables.parts
        ]
        below = [f"{name!r} has an entry for each person, and is integrated out" for name in self.integrated]
        for part in self.tables.parts:
            name, size = part.table.name, part.n_records
            if size and (cells := self.cells[name]) > size / 5:
                below.append(
                    f"{name!r} has {size / cells:.2g} records in a cell on average; five or more are good advice"
                )
        return header, rows, below


def plan_of_model(guarantee: Guarantee, model: pm.Model, *, any_model: bool = True, **arguments: Any) -> ModelPlan:
    """Plan the release of a model of any discrete data. See :func:`pymc_dirdp.plan`."""
    if any_model is not True:
        raise ArgumentError("Pass any_model=True, or leave it out for a model with Dirichlet and Beta priors.")
    refuse_unknown("plan", arguments, ModelPlanning.__annotations__)
    guarantee, options = Guarantee.checked(guarantee=guarantee), ModelOptions(**arguments)
    parsed = read_model_or_ask(model, options, "dirdp.plan(guarantee, model, any_model=True", plans=True)
    chosen = plan_tables(guarantee, parsed)
    refuse_lost_unit([str(rv.name) for rv in parsed.model.observed_RVs], model, options.max_records)
    effect = parsed.inputs.effect
    return ModelPlan(
        chosen,
        options,
        {outcomes.name: len(outcomes.rows) * len(outcomes.labels) for outcomes in parsed.outcomes},
        () if effect is None else (str(effect.variable.name),),
    )
