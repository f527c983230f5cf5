"""Options for the mechanism and its objective, with defaults that all functions for planning share."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from pymc_dirdp.checks import at_least, integer, list_of_names, one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import AdjacencyName, DrawObjective, MechanismName, Objective
from pymc_dirdp.mechanisms.registry import Dirichlet, Marginals, kind_of, kinds
from pymc_dirdp.planning.calibration import OBJECTIVES
from pymc_dirdp.privacy.people import Contribution, adjacency_by_name

MAX_DRAWS = 10**6
"""The maximum number of draws of a plan, because the curve of more could take very long."""


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """Checked options.

    Parameters
    ----------
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The neighbouring relation. Under replace-one the total number of records is public.
    mechanism : {"dirichlet", "gaussian", "geometric", "auto", "marginals", ...} or settings
        `"dirichlet"` draws from a tempered and smoothed posterior; :class:`pymc_dirdp.mechanisms.Dirichlet` has its
        settings. No such draw satisfies `PureDP` or `ZeroCDP`. `"gaussian"` (discrete Gaussian) and `"geometric"`
        (discrete Laplace) add integer noise to the counts and draw from the posterior given the noisy counts. The noisy
        counts are published, too, so one release serves any number of draws. Geometric noise adds up to 0 if the number
        of records is public. `"auto"` takes, for each table, the one of these for which :func:`pymc_dirdp.estimate` has
        the smallest expected error, or which predicts best, see `objective`. It compares plans for the whole model,
        without data. The default is `"dirichlet"`.

        `"joint"` adds one noise to all tables to which the same people add records, and to all rows of a table if a
        person has records in each, such as items by answers with `unit="person"`. Its density depends on the largest
        norm over tables and rows, so these share a guarantee instead of dividing it. It needs public numbers of
        records. `"auto"` takes it if its error is smallest.

        `"marginals"` is for whole models in which a person adds a record to each of several tables, such as a Bayesian
        network: it measures marginals of all tables once, with integer noise under one guarantee, and fits the shares
        of all tables to them. The release holds the noisy marginals, and one estimate instead of draws. The settings of
        :class:`pymc_dirdp.mechanisms.Marginals` choose the marginals and their precision.

    objective : {"posterior", "estimate", "prediction"}, default "posterior"
        What `"optimal"` minimizes for a Dirichlet draw, see :func:`pymc_dirdp.calibrate`. `"prediction"` is for
        networks with `mechanism="auto"`: all tables take the mechanisms that predict the next record best, which may be
        noisy marginals of all tables. This simulates networks of the same shape, and doubles the time of `"auto"`.
        Models from :func:`pymc_dirdp.naive_bayes` and :func:`pymc_dirdp.bayesian_network` are planned for prediction
        under `"auto"`, and for `"estimate"` otherwise.
    released_draws : int, default 1
        Number of posterior draws in the release. Draws of the Dirichlet mechanism compose: more of them lose more
        privacy.
    min_count : float, default 0.0
        The public guarantee that every cell of every data set that could occur has at least this many records.
    """

    adjacency: AdjacencyName = "replace-one"
    mechanism: MechanismName | Dirichlet | Marginals = "dirichlet"
    objective: Objective = "posterior"
    released_draws: int = 1
    min_count: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", adjacency_by_name(self.adjacency).name)
        one_of((*kinds(), "auto"), mechanism=self.kind)
        one_of(OBJECTIVES, objective=self.objective)
        object.__setattr__(self, "released_draws", integer(1, released_draws=self.released_draws))
        if self.released_draws > MAX_DRAWS:
            raise ArgumentError(
                f"Expected released_draws to be at most {MAX_DRAWS}, got {self.released_draws:.3g}. analyse() draws "
                "for free."
            )
        object.__setattr__(self, "min_count", at_least(0, min_count=self.min_count))

    @property
    def kind(self) -> str:
        """The name of the mechanism."""
        return kind_of(self.mechanism)

    def settings[T: (Dirichlet, Marginals)](self, kind: type[T]) -> T:
        """The settings of mechanisms of a kind: those that were passed, or the defaults."""
        return self.mechanism if isinstance(self.mechanism, kind) else kind()

    @property
    def strategy(self) -> str:
        """The strategy of Dirichlet draws."""
        return self.settings(Dirichlet).strategy


class DrawPlanning(TypedDict, total=False):
    """The names of :class:`TableOptions`, without the mechanism."""

    adjacency: AdjacencyName
    objective: DrawObjective
    released_draws: int
    min_count: float
    contribution: Contribution | int
    public: Iterable[str] | bool


class TablePlanning(DrawPlanning, total=False):
    """The names of :class:`TableOptions`, for functions that pass them on."""

    mechanism: MechanismName | Dirichlet | Marginals


@dataclass(frozen=True, kw_only=True)
class TableOptions(MechanismOptions):
    """Checked options of functions that plan for one table and no model.

    Parameters
    ----------
    contribution : Contribution or int, default 1
        The contribution of one person to the table. An integer is the maximum number of records, anywhere in the table.
    public : iterable of str or bool, default ()
        Pass `["n_records"]` if `n_records` is the public number of records of every data set that could occur, as for a
        plan under replace-one. Noise may then add up to 0, and a table with one row of two categories loses less in a
        draw (Theory, Theorem 14). It has no effect under add-remove.
    """

    contribution: Contribution | int = 1
    public: Iterable[str] | bool = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.public, bool):
            object.__setattr__(self, "public", list_of_names(public=self.public))
            for name in self.public:
                one_of(["n_records"], **{"name in public": name})

    @property
    def is_public(self) -> bool:
        """Whether the number of records is public. A number that is private under the adjacency remains private."""
        public = self.public if isinstance(self.public, bool) else "n_records" in self.public
        return public and adjacency_by_name(self.adjacency).records_are_public
