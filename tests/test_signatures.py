"""One argument has one meaning in all public signatures, and options that are texts say which texts there are."""

import inspect
import pydoc
import typing
from importlib import import_module

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import literals
from tests.planned import planned_sample
from tests.test_imports import PUBLIC_ROOMS

# The papers have the symbols of the papers, and errors have no options.
ROOMS = [room for room in PUBLIC_ROOMS if room not in ("papers", "errors")]

# Names that another one replaces: for all verbs, or but for those that are named here.
REPLACED = {
    "frame": "records",
    "df": "records",
    "confidence": "prob",
    "level": "prob",
    "public_n": "public",
    "public_prior": "public",
    "public_totals": "public",
}
# What a name means, by the annotation that it has wherever it stands.
MEANINGS = {
    "jointly": "Iterable[Iterable[str]]",
    "public": "bool",
    "same_records": "bool",
    "prob": "float",
    "released_draws": "int",
}
# Draws that cost nothing: given a release or a run of a bandit, of a sampler, or of a posterior that stays secret.
FREE_DRAWS = {
    "analyse",
    "diagnose",
    "exact_posterior",
    "log_likelihood",
    "predict_log_proba",
    "BanditView.posterior",
    "ThompsonSampler.posterior",
    "Transcript.posterior",
    "analyze",
    # Given one noisy output.
    "DiscreteGaussianMechanism.sample_from",
    "GeometricMechanism.sample_from",
    "JointTableMechanism.sample_from",
    "ZeroSumGeometricMechanism.sample_from",
    "ZeroSumJointTableMechanism.sample_from",
}
# A draw is from `Dirichlet(r * counts + alpha)`. Calibration raises alpha above the prior, so it is not the prior.
HAVE_ALPHA = {"DirichletMechanism", "DrawError.of_mechanism"}
# A column that says how many records a row stands for.
COUNTS_ARE_A_COLUMN = {"bayesian_network", "choose_structure", "count", "latent_class"}
MOST = {
    "sample": 12,
    "plan": 16,
    "private_model": 15,
    "count": 8,
    "estimate": 8,
    "analyse": 10,
    "compare": 6,
    "report": 2,
    "save": 3,
    "load": 2,
    "verify": 2,
    "diagnose": 5,
}
TEXTS = frozenset(
    ("adjacency", "mechanism", "objective", "sampler", "strategy", "schedule", "of", "curve", "consistency", "noise")
) | {"kind", "postprocess"}


def public_functions():
    """Every public function, constructor and method, by its room and name."""
    found = {}
    for room in ["", *ROOMS]:
        module = import_module(f"pymc_dirdp.{room}".rstrip("."))
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                found |= {
                    (room, f"{name}.{method}"): function
                    for method, function in inspect.getmembers(thing, callable)
                    if not method.startswith("_") and str(getattr(function, "__module__", "")).startswith("pymc_dirdp")
                }
            if inspect.isfunction(thing) or inspect.isclass(thing):
                found[room, name] = thing
    return found


def parameters(function):
    """The names by which a function takes arguments, also behind `**options`, with their annotations in short."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return {}
    found = {}
    for one in signature.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            for options in typing.get_args(one.annotation):
                found |= typing.get_type_hints(options)
        else:
            found[one.name] = one.annotation
    return {name: str(annotation).replace("collections.abc.", "") for name, annotation in found.items()}


FUNCTIONS = {key: found for key, function in public_functions().items() if (found := parameters(function))}


def test_the_functions_that_are_read_are_those_that_people_call():
    assert {("", "sample"), ("", "Classifier.sample"), ("bandits", "BanditView.posterior")} <= set(FUNCTIONS)
    assert len(FUNCTIONS) > 150
    assert "contribution" in FUNCTIONS["", "calibrate"]


def test_a_name_that_another_one_replaces_is_nowhere():
    assert [(key, REPLACED[old]) for key, found in FUNCTIONS.items() for old in REPLACED if old in found] == []


def test_the_prior_of_a_model_is_called_prior():
    assert {name for (_, name), found in FUNCTIONS.items() if "alpha" in found} == HAVE_ALPHA


def test_counts_are_a_column_of_records():
    having = {name for (room, name), found in FUNCTIONS.items() if "counts" in found and room in ("", "networks")}
    assert having == COUNTS_ARE_A_COLUMN
    assert "count_variables" in FUNCTIONS["", "private_model"]


def test_draws_are_free():
    having = {name for (_, name), found in FUNCTIONS.items() if "draws" in found}
    assert having == FREE_DRAWS
    assert "released_draws" in FUNCTIONS["", "plan"]
    assert "released_draws" in FUNCTIONS["", "calibrate"]


@pytest.mark.parametrize("name", MEANINGS)
def test_a_name_has_one_meaning(name):
    having = {key: found[name] for key, found in FUNCTIONS.items() if name in found}
    assert having
    assert all(MEANINGS[name] in annotation for annotation in having.values()), having


def test_one_verb_reports_and_one_verifies():
    methods = {name.partition(".")[2] for _, name in FUNCTIONS}
    assert methods.isdisjoint({"report", "verify", "statement"})


def test_likelihoods_are_called_by_what_they_are_of():
    # That of a mechanism is of an output given counts.
    having = {name for (room, name) in FUNCTIONS if name.endswith("log_likelihood") and room != "mechanisms"}
    assert having == {"log_likelihood", "BatchNoise.log_likelihood", "BatchCounts.log_likelihood"} & having
    assert ("", "release_logp") in FUNCTIONS
    assert any(name.endswith(".release_logp") for _, name in FUNCTIONS)


@pytest.mark.parametrize("verb", MOST)
def test_a_main_verb_has_few_options_and_help_of_a_screen_and_a_half(verb):
    assert len(inspect.signature(getattr(dirdp, verb)).parameters) <= MOST[verb]
    assert len(pydoc.plain(pydoc.render_doc(getattr(dirdp, verb))).splitlines()) <= 75


def test_options_of_a_plan_are_answered_with_the_call_that_has_them():
    for verb, options in (
        (dirdp.sample, ("objective", "released_draws", "sampler", "min_count", "weights", "after", "disjoint")),
        (dirdp.private_model, ("weights", "max_cells")),
    ):
        for option in options:
            with pytest.raises(dirdp.errors.KeywordError, match=rf"Call plan\(\.\.\., {option}=\.\.\.\)"):
                verb(dirdp.PureDP(epsilon=1.0), None, **{option: 1})


def test_options_that_are_texts_say_which_texts_there_are():
    aliases = set(vars(literals))
    for (room, name), found in FUNCTIONS.items():
        # What a file holds is compared with the texts when it is read.
        if room == "mechanisms" or (room in ("", "planning", "plots", "bandits") and name[0].islower()):
            for option in TEXTS & set(found):
                words = found[option].replace(" ", "").split("|")
                assert not {"str", "<class'str'>"} & set(words), (name, option, found[option])
                if option in ("adjacency", "sampler", "objective"):
                    assert any(word.rpartition(".")[2] in aliases for word in words), (name, option, found[option])


def test_a_type_and_its_check_have_the_same_texts():
    from pymc_dirdp.bandits.batch_release import KINDS
    from pymc_dirdp.mechanisms.registry import kinds
    from pymc_dirdp.models.model_options import NOISES
    from pymc_dirdp.privacy.people import ADJACENCIES

    assert set(literals.options_of(literals.AdjacencyName)) == set(ADJACENCIES)
    assert set(literals.options_of(literals.MechanismName)) == {*kinds(), "auto"}
    assert set(literals.options_of(literals.NoiseName)) == {*NOISES, "auto"}
    assert set(literals.options_of(literals.BanditMechanism)) == set(KINDS)


def test_a_plan_has_all_options_of_sample():
    assert set(inspect.signature(dirdp.sample).parameters) <= set(inspect.signature(planned_sample).parameters) | set(
        inspect.signature(dirdp.plan).parameters
    )
