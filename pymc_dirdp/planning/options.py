"""Which mechanism, and for what it is set: options that all of planning takes, each with its one default."""

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
"""No plan has more draws than this; the curve of so many could take for ever."""


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
        (discrete Laplace) add integer noise to the counts and draw from the posterior given the noisy counts, which are
        published too: one release serves any number of draws. Geometric noise adds up to 0 where the number of records
        is public. `"auto"` takes, for each table, the one of these from which :func:`pymc_dirdp.estimate` has the
        smallest expected error, or that which predicts best, see `objective`. Plans for the whole model are compared
        for that, and no data decide. The default is `"dirichlet"`.

        `"joint"` adds one noise to all tables to which the same people add records, and to all rows of a table in each
        of which a person has some, such as items by answers with `unit="person"`. Its largest norm over tables and rows
        decides, so that they share a guarantee and do not divide it. It is for public numbers of records. `"auto"`
        takes it where its error is smallest.

        `"marginals"` is for whole models in which a person adds a record to each of several tables, such as a Bayesian
        network: it measures marginals of all tables once, with integer noise under one guarantee, and fits the shares
        of all tables to them. The release holds the noisy marginals, and one estimate instead of draws. Which are
        measured, and how precisely, are settings of :class:`pymc_dirdp.mechanisms.Marginals`.

    objective : {"posterior", "estimate", "prediction"}, default "posterior"
        What `"optimal"` keeps small in a Dirichlet draw, see :func:`pymc_dirdp.calibrate`. `"prediction"` is
        for networks with `mechanism="auto"`: all tables take the mechanisms from which the next record is predicted
        best, noisy marginals of all tables among them. Networks of the same shape are simulated for that, which takes
        about as long again as `"auto"` itself. Models that :func:`pymc_dirdp.naive_bayes` and
        :func:`pymc_dirdp.bayesian_network` have built are planned for it under `"auto"`, and for `"estimate"`
        otherwise.
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
        """The settings of mechanisms of a kind: those that were asked for, or the defaults."""
        return self.mechanism if isinstance(self.mechanism, kind) else kind()

    @property
    def strategy(self) -> str:
        """The strategy of Dirichlet draws."""
        return self.settings(Dirichlet).strategy


class DrawPlanning(TypedDict, total=False):
    """The names of :class:`TableOptions` but for the mechanism."""

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
        What one person can add to the table. An integer means so many records at most, anywhere in the table.
    public : iterable of str or bool, default ()
        Pass `["n_records"]` if `n_records` is the public number of records of every data set that could occur, as it is
        for a plan under replace-one. Noise may then add up to 0, and a table with one row of two categories loses less
        in a draw (Theory, Theorem 14). It changes nothing under add-remove.
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
        """Whether the number of records is public: what is private by the adjacency is not made public by a word."""
        public = self.public if isinstance(self.public, bool) else "n_records" in self.public
        return public and adjacency_by_name(self.adjacency).records_are_public
