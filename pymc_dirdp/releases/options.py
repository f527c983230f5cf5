"""The options of a plan with their defaults. `plan` and `sample` take the same ones."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, Required, TypedDict

from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.mechanisms.registry import Marginals
from pymc_dirdp.models.privacy_unit import Stated, Unit, stated
from pymc_dirdp.planning.options import MechanismOptions, MechanismPlanning
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.choices import PrivateChoice
from pymc_dirdp.sampling.bits import Seed

__all__ = ["ModelPlanning", "Options", "Planning", "predicts", "refuse_unknown", "with_options"]


class Planning(MechanismPlanning, total=False):
    """The names of :class:`Options`, for functions that pass them on."""

    n_records: int | Mapping[str, int] | None
    unit: Unit | None
    contribution: int | None
    public_n: Iterable[str]
    public_prior: Iterable[str]
    weights: Mapping[str, float] | None
    after: PrivateChoice | Sequence[PrivateChoice] | None
    disjoint: Iterable[Iterable[str]] | None


class ModelPlanning(TypedDict, total=False):
    """What :func:`pymc_dirdp.plan` takes beside a guarantee and a model of any discrete data."""

    any_model: Required[Literal[True]]
    public: Any
    levels: Mapping[str, int] | None
    counts: Any
    jointly: Any
    support: Mapping[str, Any] | None
    unit: str | None
    contribution: int
    adjacency: str | None
    mechanism: str
    weights: Mapping[str, float] | None
    disjoint: Any
    max_cells: int
    against: Sequence[Guarantee]
    n_records: int | None
    simulations: int
    random_seed: Seed


@dataclass(frozen=True, kw_only=True)
class Options(MechanismOptions):
    """Checked options.

    Parameters
    ----------
    n_records : int or mapping of str to int, optional
        The planning size where the number of records is private: under add-remove, and with `unit` and `contribution`.
        It is one number for all tables, or a number for each. It is refused elsewhere, because the model states it.
    unit : str, int or tuple of these, optional
        The axis whose entries are the people: a dim of the observed variables, or the number of one of their axes; a
        tuple for people in groups, as `("hospital", "person")`. What a person can change in each table follows from the
        other axes. Without it one record is one person. If the model leaves that open, an error asks for the unit.
    contribution : int, optional
        How many records of each table a person holds at most, anywhere. With `unit` it is how many records of each
        observed variable an entry of the unit holds at most: the number of records of a person and of all people are
        private then, so sizes come from `n_records`, and `sample` refuses data in which a person holds more.
    public_n : iterable of str, default ()
        Observed variables whose number of trials anybody may know, although it comes from data or differs between
        people. Where each record is another person, the numbers of records of the rows that follow its axes are public
        then, and a record that is replaced stays in its row. A name that changes nothing is refused.
    public_prior : iterable of str, default ()
        The `pm.Data` in priors that anybody may know, also those that :func:`pymc.do` has put there. They are read when
        a plan is made.
    weights : mapping of str to float, optional
        Relative budgets of the tables, by name; 1 for those that are not named. Budgets are shares of the Rényi
        divergence, at the order of the guarantee or, for ApproxDP, at one that suits it. Marginals have their own.
    after : Structure, Bins or sequence of these, optional
        What :func:`pymc_dirdp.choose_structure` and :func:`pymc_dirdp.choose_bins` have chosen from the same records.
        The guarantee is then that of these choices and of the tables together, and the tables get what is left of it.
    disjoint : iterable of iterables of str, optional
        Groups of tables or observed variables that are fed by different people: nobody has records in two groups.
        Variables in no group may hold anybody's records. Without it, every person may have a record in every table.
    """

    n_records: int | Mapping[str, int] | None = None
    unit: Unit | None = None
    contribution: int | None = None
    public_n: Iterable[str] = ()
    public_prior: Iterable[str] = ()
    weights: Mapping[str, float] | None = None
    after: PrivateChoice | Sequence[PrivateChoice] | None = None
    disjoint: Iterable[Iterable[str]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None and self.kind == Marginals.kind:
            raise ArgumentError(
                "weights share the guarantee among tables, and marginals are measured of all tables at once. Take "
                "mechanism=dirdp.mechanisms.Marginals(weights=...), which names marginals."
            )
        _ = self.stated  # Statements that contradict one another are an error at once.
        _ = self.choices  # So is what is none.

    @cached_property
    def choices(self) -> tuple[PrivateChoice, ...]:
        """What was chosen before, each by itself."""
        given = (self.after,) if isinstance(self.after, PrivateChoice) else self.after
        found = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
        for one in found:
            if not isinstance(one, PrivateChoice):
                raise ArgumentError(
                    "Expected after to be what choose_structure or choose_bins has chosen, or a list of these, got "
                    f"{type_name(one)}. What is public costs nothing: leave it out."
                )
        return found

    @cached_property
    def stated(self) -> Stated:
        """The statements about people."""
        return stated(
            unit=self.unit,
            contribution=self.contribution,
            public_n=self.public_n,
            public_prior=self.public_prior,
            disjoint=self.disjoint,
            adjacency=self.adjacency,
        )


def predicts(planning: Planning) -> bool:
    """Whether mechanisms are compared by the next record. What a Dirichlet draw keeps small is then its own error."""
    if planning.get("objective") != "prediction":
        return False
    if (mechanism := planning.get("mechanism", "dirichlet")) != "auto":
        raise ArgumentError(
            f"objective='prediction' is how mechanism='auto' compares, got mechanism={mechanism!r}. Take "
            "objective='estimate'."
        )
    planning["objective"] = "estimate"
    return True


def refuse_unknown(function: str, planning: Mapping[str, object]) -> None:
    """Python's own error for an argument that a function does not have."""
    if unknown := sorted(set(planning) - {field.name for field in fields(Options)}):
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")


def with_options[F: Callable[..., Any]](function: F) -> F:
    """Name every option, with its default and its meaning, in the help of a function that takes `**planning`."""
    signature = inspect.signature(function)
    # The last parameter is `**planning`.
    *own, _ = signature.parameters.values()
    options = inspect.signature(Options).parameters.values()
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *options])
    helps = [inspect.cleandoc(kind.__doc__ or "") for kind in (MechanismOptions, Options)]
    texts = "".join(f"{text.partition('----------')[2].strip()}\n" for text in helps)
    function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("**planning\n", texts, 1)
    return function
