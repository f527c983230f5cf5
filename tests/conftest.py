"""What is the same in every run of every test, and releases whose texts were edited."""

import json
import os
import random
import re
from contextlib import contextmanager

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, settings

# A busy machine is not a failure, and a test that fails for one person has to fail for everybody: no example has to end
# in 200 ms, and the examples are the same in every run. Tests that are run on demand can ask for others.
settings.register_profile("project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What a plain `pytest` runs is marked `newcomer`: who has just run it can ask for the others."""
    places = [config.rootpath / place for place in config.getini("testpaths")]
    files = {file for file in {item.path for item in items} if any(map(file.is_relative_to, places))}
    for item in items:
        if item.path in files and not any(map(item.get_closest_marker, ("thorough", "slow"))):
            item.add_marker("newcomer")


def pytest_addoption(parser):
    meaning = "take random bits from the operating system: every test that draws then has its small chance to fail"
    parser.addoption("--system-randomness", action="store_true", help=meaning)


@contextmanager
def _randomness_of(name):
    """What the operating system, `secrets` and a generator without a seed give is the same whenever a name is the same.

    A release takes its bits there, so a test of one would meet another coincidence in every run: two releases that have
    to differ are equal, a hash holds the digits of a count. A fork has the system's own bits, as it has to have others.
    """
    system, bits, owner = os.urandom, random.Random(name).randbytes, os.getpid()

    def urandom(size):
        return bits(size) if os.getpid() == owner else system(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", urandom)
        patch.setattr(random, "_urandom", urandom)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if item.config.option.system_randomness:
        return (yield)
    with _randomness_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if request.config.option.system_randomness:
        return (yield)
    # A fixture of a module is set up for whichever of its tests comes first.
    with _randomness_of(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param_index', '')}"):
        return (yield)


@pytest.fixture(autouse=True)
def no_counts_of_other_tests():
    """Counts of a test that failed, or of an error that is still referred to, are not looked for in other tests."""
    from pymc_dirdp.counting.counts import _LIVE

    yield
    _LIVE.clear()


@pytest.fixture(scope="session")
def text_of_facts():
    """`text_of_facts(facts)`: a text in its canonical form, with the digest that belongs to it; any other for NaN."""
    from pymc_dirdp.texts.grammar import digest, to_lines

    def text_of(facts):
        try:
            return to_lines({"digest": digest(facts)} | facts)
        except ValueError:
            return json.dumps({"digest": "0" * 64} | facts)

    return text_of


@pytest.fixture(scope="session")
def edited(text_of_facts):
    """`edited(release, (path, value), ...)`: the release of which somebody has edited the text, with its own digest.

    The path is that of a fact, and the value what stands there instead, or a function of it. Where the text is none,
    the tree is the old one with the new text.
    """
    from pymc_dirdp.errors import ReleaseError
    from pymc_dirdp.releases.opened import from_text
    from pymc_dirdp.releases.view import view

    def edit(release, *edits):
        facts = json.loads(release["release"]["text"].item())
        facts.pop("digest")
        for path, value in edits:
            inside = facts
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = value(inside[path[-1]]) if callable(value) else value
        text = text_of_facts(facts)
        try:
            return view(from_text(text))
        except ReleaseError:
            tree = release.copy(deep=True)
            tree["release"] = xr.DataTree(xr.Dataset({"text": ((), np.array(text, dtype=object))}))
            return tree

    return edit


@pytest.fixture(scope="session")
def numbers_in():
    """`numbers_in(text)`: the integers that stand in a text by themselves.

    An identity, a hash or a random share may hold the digits of any count.
    """
    return lambda text: {int(found) for found in re.findall(r"(?<![\w.])\d+(?!\w|\.\d)", text)}
