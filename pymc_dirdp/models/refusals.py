"""All refusals of models: why no guarantee is proved for a part of a model, and what to do about it.

Each has a test that applies its way out: `tests/models/test_refusals.py`, and for people `tests/models/test_zoo.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from pymc_dirdp.errors import UnsupportedModelError, missing_values


@dataclass(frozen=True)
class Refusal:
    """One reason why a model is refused. In both texts, names in braces are filled in.

    Attributes
    ----------
    reason : str
        The end of a sentence about a variable.
    way_out : str
        What to do, in one or more sentences.
    """

    reason: str
    way_out: str


_CONJUGATES = (
    "Supported are Multinomial, Categorical and DirichletMultinomial for a Dirichlet prior, Binomial, Bernoulli and "
    "BetaBinomial for a Beta prior."
)
_ANY_MODEL = "dirdp.private_model(guarantee, model) releases the records of any discrete model. "
_PUBLIC_RECORDS = 'Use adjacency="replace-one", where the number of records is public.'

REFUSALS = MappingProxyType(
    {
        # Parts of a model that are not variables with data
        "nothing": Refusal(
            "has no Dirichlet or Beta variable, so there is nothing that dirdp.sample could release",
            _ANY_MODEL + "For dirdp.sample give the data a Dirichlet or Beta prior.",
        ),
        "potential": Refusal(
            "is a pm.Potential, which multiplies the posterior by something that is not a count",
            "For survey weights, release the table of strata by answers and weight its shares afterwards, at no cost. "
            "Where the potential is a power of a share, add the power to the prior of that category.",
        ),
        "observed parameter": Refusal("is a parameter and is itself observed", "Leave it unobserved."),
        "missing values": Refusal(
            "has missing values, which PyMC would impute",
            missing_values(),
        ),
        "no child": Refusal("has no observed child, so there is nothing to release", "Observe data that use it."),
        "name taken": Refusal("would be released as {released!r}, a name that is taken", "Rename {released!r}."),
        # Variables that are not released
        "unobserved prediction": Refusal(
            "is an unobserved {operation} variable",
            "Observe it, or predict it from the release with sample_posterior_predictive.",
        ),
        "hidden parent": Refusal(
            "is an unobserved {operation} variable that decides how {children} is distributed: no record says which "
            "cell it belongs to",
            "Observe it. Or sum over its values with pm.Mixture, and release that model by dirdp.private_model.",
        ),
        "hyperparameter": Refusal(
            "is an unobserved {operation} variable in the prior of {children}: the posterior is then a mixture of "
            "Dirichlet or Beta distributions, over all its values",
            _ANY_MODEL + "For dirdp.sample write its value as a number.",
        ),
        "other parameter": Refusal(
            "is an unobserved {operation} variable behind {children}, and neither Dirichlet nor Beta",
            _ANY_MODEL + "For dirdp.sample give {children} a Dirichlet or Beta variable as probability. Measurements "
            "have none: take {children} out of this model together with {name!r}.",
        ),
        "other variable": Refusal(
            "is an unobserved {operation} variable",
            _ANY_MODEL + "For dirdp.sample take it out of the model.",
        ),
        "uniform bounds": Refusal(
            "is a Uniform variable with bounds other than 0 and 1, which truncates the posterior",
            "Write pm.Uniform({name!r}, 0, 1) or pm.Beta({name!r}, 1, 1), which are the same.",
        ),
        "transform": Refusal("has a transform that changes its distribution ({transform})", "Leave `transform=` out."),
        # Priors
        "random prior": Refusal(
            "has a prior that depends on the random variable {source!r}",
            _ANY_MODEL + "For dirdp.sample write the prior as numbers.",
        ),
        "prior of data": Refusal(
            "has a prior that depends on the data {source!r}",
            "Write the prior as numbers, or make the data a pm.Data and add public=[{source!r}] if anybody may know "
            "them.",
        ),
        "prior of records": Refusal(
            "has a prior that depends on the data {source!r}, which hold records of people",
            "Write the prior as numbers.",
        ),
        "free input": Refusal(
            "has a prior that depends on a PyTensor variable without a value", "Write the prior as numbers."
        ),
        "prior shape": Refusal("has a prior whose shape does not fit its rows", "Make the shapes agree."),
        "one category": Refusal(
            "has one category only, so there is nothing to estimate", "Declare at least two categories."
        ),
        "labels": Refusal(
            "has more or fewer entries along the dim {dim!r} than labels", "Declare one label for each entry."
        ),
        # Likelihoods
        "unbounded trials": Refusal(
            "is observed through {operation}, which is not supported: one record is an unbounded sequence of trials, "
            "so the contribution of a person is unbounded",
            "Observe its trials one by one with pm.Bernoulli, and pass contribution= for the maximum number of trials "
            "of a person. BetaBinomial for a Beta prior is supported, too.",
        ),
        "hidden component": Refusal(
            "is observed through {operation}, which is not supported: no record says which component it comes from, so "
            "the posterior is neither Dirichlet nor Beta",
            _ANY_MODEL + "Or observe the component and choose the row by it, as in p[component]. " + _CONJUGATES,
        ),
        "hidden values": Refusal(
            "is observed through {operation}, which is not supported: some values are hidden or left out, so the "
            "posterior is neither Dirichlet nor Beta",
            _ANY_MODEL + "Or observe whole counts through the distribution inside. " + _CONJUGATES,
        ),
        "not conjugate": Refusal(
            "is observed through {operation}, which is not supported",
            _ANY_MODEL + "Poisson counts are Multinomial given their total. " + _CONJUGATES,
        ),
        "chain": Refusal(
            "is a DiscreteMarkovChain with {what}",
            "Write {ways}.",
        ),
        "total size": Refusal("is rescaled by total_size", "Leave total_size out and observe all records."),
        "transformed observations": Refusal("has a transform", "Observe the variable itself, without `transform=`."),
        "computed observations": Refusal(
            "has observations that are computed in the model",
            "Pass an array or a pm.Data that holds the counts or records themselves, or a slice of one.",
        ),
        "random trials": Refusal("has a number of trials that is random", "Write `n` as numbers or pm.Data."),
        # Probabilities
        "no parameter": Refusal(
            "has no Dirichlet or Beta variable of this model as its probability{but}",
            "Give it one as `p=`; leave observed variables without one out of the model.",
        ),
        "formula": Refusal(
            "has a probability that is computed from {names}: it {why}, so the posterior is neither Dirichlet nor Beta",
            _ANY_MODEL + "For dirdp.sample give the probability a Dirichlet or Beta variable of its own: shares may be "
            "selected, reordered, stacked, taken from 1, or chosen by codes.",
        ),
        "some categories": Refusal(
            "uses only {taken} of the {categories} categories of {names}: observations of these say nothing about the "
            "others, so the posterior is not Dirichlet",
            "Give it a Dirichlet variable of {taken} categories.",
        ),
        "mixed rows": Refusal(
            "uses {names}, which is a {family} variable, with categories from several rows or a category twice: "
            "{operation} is conjugate only to a Dirichlet prior, with the shares of one row as its categories",
            "Give it a Dirichlet variable as `p=`.",
        ),
        "last axis": Refusal("has {names} with its categories not on the last axis", "Move the categories to the end."),
        "one of many": Refusal(
            "uses one share of {names}, which is a Dirichlet variable of {categories} categories: {operation} is "
            "conjugate only to a Beta prior, because no record says to which of the other categories a failure belongs",
            "Observe all categories with Multinomial or Categorical, or give it a Beta variable.",
        ),
        "repeated rows": Refusal(
            "uses a row of {names} at several positions, but not at all of them, so the model itself says which "
            "records belong together, and that is data",
            "Choose the rows by codes instead, as in p[codes].",
        ),
        "computed codes": Refusal(
            "takes its row of {names} from something that is computed in the model ({parent})",
            "Index with an array, a pm.Data or an observed variable that holds the codes themselves, or with a formula "
            "of such arrays that has one entry for each record.",
        ),
        "tables by codes": Refusal(
            "chooses between {names} by the codes {parent!r}, so the number of records of each is data",
            "Make one variable of them with one row for each, and index it with the codes; or pass "
            "adjacency='add-remove', where the numbers of records are private.",
        ),
        # People
        "used twice": Refusal(
            "is used twice: {first!r} and {second!r} may hold the same records",
            "Give each its own parameter, or observe the summed counts once; or pass disjoint= if different "
            "people feed them, unit= for the axis of the people, or contribution= for the maximum number of records of "
            "a person in it.",
        ),
        "shared codes": Refusal(
            "takes the rows of several records from one entry of {parent!r}, which {unit_text} gives to several people",
            "Pass unit= if the entries of {axes} are the people; or give each record a code of its own.",
        ),
        "few records": Refusal(
            "takes the rows of {records} records from one entry of {parent!r}, so {unit_text} is too little",
            "Pass contribution={records} or more, or unit= if the entries of {axes} are the people.",
        ),
        "steps": Refusal(
            "is a sequence along {axis}, which {unit_text} names: each entry is in several records",
            "Name another axis, or pass the maximum number of records of a person as contribution= instead of unit=.",
        ),
        "shared data": Refusal(
            "{problem}, so the groups of disjoint do not hold different people",
            "Put both into one group, or leave disjoint out.",
        ),
        # Numbers that a release would publish
        "trials are data": Refusal(
            "has a number of trials that is, or depends on, what is observed in {source!r}, so it is not public",
            "{ways}",
        ),
        "different numbers": Refusal(
            "has another number of records than {other!r}. This number would be published, and may be a count of what "
            "{other!r} observes, such as the number of buyers among those who signed up, because the same people may "
            "feed both",
            "If it is such a count, observe one variable with a category for each outcome, or pass "
            "adjacency='add-remove', where the numbers of records are private. Otherwise pass public= if anybody may "
            "know it, or disjoint= if different people feed them.",
        ),
        "row of each record": Refusal(
            "has one record in each row of {table!r}, so under add-remove the shape of the release would show how many "
            "people take part",
            _PUBLIC_RECORDS,
        ),
        "row of each person": Refusal(
            "has a row of {table!r} for each record, so under add-remove the shape of the release would show who takes "
            "part",
            _PUBLIC_RECORDS,
        ),
        "labels of people": Refusal(
            "has a row for each entry of a dim along which {observed!r} has its records, so under add-remove the shape "
            "of the release would show how many people take part",
            _PUBLIC_RECORDS,
        ),
        "prior of a length": Refusal(
            "has a prior that depends on the number of observations, which is private under add-remove",
            "Write the prior as numbers.",
        ),
    }
)


def join_names(names: Iterable[str]) -> str:
    """Names as errors write them."""
    return " and ".join(map(repr, names))


def refusal(key: str, name: str | None, **facts: object) -> UnsupportedModelError:
    """The error for a model that cannot be released: which variable, why, and what to do about it."""
    entry = REFUSALS[key]
    facts["name"] = name
    return UnsupportedModelError(
        f"Cannot release this model: {name!r} {entry.reason.format(**facts)}. {entry.way_out.format(**facts)}"
    )
