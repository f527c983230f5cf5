"""Arguments that are misspelt, or of a wrong type: the answer is an error of the library that names the argument."""

import inspect
import pickle
import re
import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import KeywordError
from pymc_dirdp.planning.options import TableOptions
from pymc_dirdp.releases.plan import ModelPlanning, Options

ROOMS = (
    dirdp,
    dirdp.auditing,
    dirdp.bandits,
    dirdp.curator,
    dirdp.mechanisms,
    dirdp.planning,
    dirdp.plots,
    dirdp.privacy,
    dirdp.releases,
    dirdp.sparse,
)
# What nobody but the library makes, or that everybody derives from.
RESULTS = {
    *("Audit", "BanditRuns", "BanditView", "Bins", "Comparison", "Confidential", "Counts", "DrawError", "Estimates"),
    *("Frontier", "Guarantee", "Mechanism", "MechanismOutput", "ModelPlan", "Plan", "Policy", "PriorExpectedKL"),
    *("RealisedError", "Report", "SparseCounts", "SparseEstimates", "Statement", "Structure", "Table", "Transcript"),
    *("Verification",),
}
# Its names depend on the kind that is asked for.
BY_KIND = {"convert"}


def public_verbs():
    """Functions of all rooms, constructors, and methods that do something."""
    for room in ROOMS:
        for name in room.__all__:
            thing = getattr(room, name)
            is_made = inspect.isclass(thing) and not issubclass(thing, Exception) and name not in RESULTS
            if inspect.isfunction(thing) or is_made:
                yield name, thing
    for kind in (dirdp.Classifier, dirdp.Ledger, dirdp.ThompsonSampler):
        for name in vars(kind):
            method = getattr(kind, name)
            if not name.startswith("_") and inspect.isroutine(method):
                yield f"{kind.__name__}.{name}", method


VERBS = dict(public_verbs())


def names_of(verb):
    return [name for name in inspect.signature(verb).parameters if name != "self"]


OPTIONS = {
    **dict.fromkeys(
        ("calibrate", "compare", "expected_error", "least_guarantee", "least_records", "privacy_utility"),
        inspect.signature(TableOptions).parameters,
    ),
    "plan": [*inspect.signature(Options).parameters, *ModelPlanning.__annotations__],
}
NAMED = [
    (verb, name)
    for verb in VERBS
    if verb not in BY_KIND
    for name in dict.fromkeys([*names_of(VERBS[verb]), *OPTIONS.get(verb, ())])
    if name != "options"
]


def misspelt(name):
    """The name with its middle letters exchanged, or doubled if they are the same."""
    middle = len(name) // 2
    before, after = name[middle - 1 : middle], name[middle : middle + 1]
    exchanged = name[: middle - 1] + after + before + name[middle + 1 :] if middle else name
    return exchanged if exchanged != name else f"{name}{name[-1]}"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in BY_KIND and names_of(VERBS[verb])])
def test_a_misspelt_name_is_answered_with_the_right_one(verb):
    for name in [name for other, name in NAMED if other == verb and len(name) > 3]:
        answer = f"unexpected keyword argument '{misspelt(name)}'. Did you mean '{name}'?"
        with pytest.raises(KeywordError, match=re.escape(answer)):
            VERBS[verb](**{misspelt(name): None})


def test_a_name_like_no_other_is_answered_with_all():
    with pytest.raises(KeywordError, match=r"argument 'x'\. It has guarantee, prior, n_records, simulations"):
        dirdp.compare(x=1)
    # Python calls it a type error, and so do programs that try an option.
    assert issubclass(KeywordError, TypeError)


def test_a_plan_of_any_model_and_one_of_tables_have_their_own_names():
    guarantee = dirdp.PureDP(epsilon=1)
    with pytest.raises(KeywordError, match=r"argument 'public'\. Did you mean 'public_n'"):
        dirdp.plan(guarantee, pm.Model(), public=True)
    with pytest.raises(KeywordError, match=r"argument 'public_n'\. Did you mean 'public'"):
        dirdp.plan(guarantee, pm.Model(), any_model=True, public_n=["y"])


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "." not in verb])
def test_a_verb_is_found_where_it_says_that_it_was_defined(verb):
    """A wrapper has the name, the signature and the documentation of what it wraps, and can be pickled."""
    thing = VERBS[verb]
    assert pickle.loads(pickle.dumps(thing)) is thing
    assert thing.__doc__
    assert "args" not in names_of(thing)


def test_warnings_point_to_the_line_that_called():
    counts = {"observed": [20, 30, 10, 5], "n": 65}
    with pm.Model(coords={"hair": ["red", "brown", "black", "blond"]}) as model:
        pm.Multinomial("y", p=pm.Dirichlet("p", np.ones(4), dims="hair"), dims="hair", **counts)
    descending = pm.Model(coords={"hair": ["red", "brown", "black", "blond"]})
    with descending:
        pm.Multinomial("y", n=65, p=pm.Dirichlet("p", np.ones(4), dims="hair"), observed=[30, 20, 10, 5], dims="hair")
    guarantee = dirdp.ApproxDP(epsilon=0.1, delta=1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            dirdp.sample(guarantee, model, draws=100, random_seed=1)
            dirdp.sample(guarantee, descending)
        dirdp.ThompsonSampler(["a", "b"], guarantee, random_seed=1)
        dirdp.plan(dirdp.PureDP(epsilon=100), model)
    kinds = {
        dirdp.errors.CategoriesFromDataWarning,
        dirdp.errors.ManyDrawsWarning,
        dirdp.errors.RepeatedReleaseWarning,
        dirdp.errors.SeededReleaseWarning,
        dirdp.errors.WeakGuaranteeWarning,
    }
    assert kinds <= {warning.category for warning in caught}
    assert {warning.filename for warning in caught} == {__file__}
