"""One argument has one meaning in all public signatures, and options that are texts say which texts there are."""

import inspect
import pydoc

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp import literals
from pymc_dirdp.bandits.batch_release import KINDS
from pymc_dirdp.mechanisms.registry import kinds
from pymc_dirdp.models.model_options import NOISES
from pymc_dirdp.privacy.people import ADJACENCIES
from tests.planned import planned_sample
from tests.verbs import parameters, public_functions

REPLACED = {"frame", "df", "confidence", "level", "public_n", "public_prior", "public_totals"}
# What a name means, by the annotation that it has wherever it stands.
MEANINGS = {
    "jointly": "Iterable[Iterable[str]]",
    "public": "bool",
    "same_records": "bool",
    "prob": "float",
    "released_draws": "int",
}
MECHANISMS = ("DiscreteGaussian", "Geometric", "JointTable", "ZeroSumGeometric", "ZeroSumJointTable")
# All functions that take an argument of this name.
TAKE = {
    # A draw is from `Dirichlet(r * counts + alpha)`. Calibration raises alpha above the prior, so it is not the prior.
    "alpha": {"DirichletMechanism", "DrawError.of_mechanism"},
    # Draws that cost nothing: given a release or a run of a bandit, of a sampler, of a posterior that stays secret, or
    # given one noisy output.
    "draws": {
        *("analyse", "analyze", "diagnose", "exact_posterior", "log_likelihood", "predict_log_proba"),
        *("BanditView.posterior", "ThompsonSampler.posterior", "Transcript.posterior"),
        *(f"{name}Mechanism.sample_from" for name in MECHANISMS),
    },
    # A column that says how many records a row stands for.
    "counts": {"bayesian_network", "choose_structure", "count", "latent_class"},
}
MOST = {"sample": 12, "plan": 16, "private_model": 15, "count": 8, "estimate": 8, "analyse": 10, "compare": 6}
MOST |= {"report": 2, "save": 3, "load": 2, "verify": 2, "diagnose": 5}
TEXTS = {
    "adjacency",
    "mechanism",
    "objective",
    "sampler",
    "strategy",
    "schedule",
    "of",
    "curve",
    "consistency",
    "noise",
}
TEXTS |= {"kind", "postprocess"}

# The papers have the symbols of the papers, and errors have no options.
FUNCTIONS = {
    (room, name): found
    for (room, name), function in public_functions().items()
    if room not in ("papers", "errors") and (found := parameters(function))
}


def test_the_functions_that_are_read_are_those_that_people_call():
    assert {("", "sample"), ("", "Classifier.sample"), ("bandits", "BanditView.posterior")} <= set(FUNCTIONS)
    assert len(FUNCTIONS) > 150
    for verb, names in (("calibrate", {"contribution", "released_draws"}), ("plan", {"released_draws"})):
        assert names <= set(FUNCTIONS["", verb])
    assert "count_variables" in FUNCTIONS["", "private_model"]
    assert [(key, found) for key, found in FUNCTIONS.items() if REPLACED & set(found)] == []


@pytest.mark.parametrize("argument", TAKE)
def test_only_these_take_an_argument_of_this_name(argument):
    # The noise of a mechanism is of counts.
    rooms = ("", "networks") if argument == "counts" else {room for room, _ in FUNCTIONS}
    assert {name for (room, name), found in FUNCTIONS.items() if argument in found and room in rooms} == TAKE[argument]


def test_a_name_has_one_meaning_and_one_verb_does_one_thing():
    for name, meaning in MEANINGS.items():
        having = {key: found[name] for key, found in FUNCTIONS.items() if name in found}
        assert having
        assert all(meaning in annotation for annotation in having.values()), having
    methods = {name.partition(".")[2] for _, name in FUNCTIONS}
    assert methods.isdisjoint({"report", "verify", "statement"})
    # A likelihood is called by what it is of; that of a mechanism is of an output given counts.
    having = {name for (room, name) in FUNCTIONS if name.endswith("log_likelihood") and room != "mechanisms"}
    assert having == {"log_likelihood", "BatchNoise.log_likelihood", "BatchCounts.log_likelihood"} & having
    assert "release_logp" in methods
    assert ("", "release_logp") in FUNCTIONS


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
    for alias, texts in (
        (literals.AdjacencyName, ADJACENCIES),
        (literals.MechanismName, [*kinds(), "auto"]),
        (literals.NoiseName, [*NOISES, "auto"]),
        (literals.BanditMechanism, KINDS),
    ):
        assert set(literals.options_of(alias)) == set(texts)


def test_a_plan_has_all_options_of_sample():
    assert set(inspect.signature(dirdp.sample).parameters) <= set(inspect.signature(planned_sample).parameters) | set(
        inspect.signature(dirdp.plan).parameters
    )
