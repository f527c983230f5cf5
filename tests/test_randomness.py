"""No test fails by a coincidence: what it takes from the operating system is the same in every run."""

import os
import random
import secrets

import numpy as np
import pytest

import pymc_dirdp as dirdp
from tests.planned import one_row


@pytest.fixture(autouse=True)
def stated(request):
    if request.config.option.system_randomness:
        pytest.skip("the bits of this run are the operating system's")
    return random.Random(request.node.nodeid).randbytes


def release():
    release = dirdp.sample(dirdp.PureDP(epsilon=0.1), one_row(), mechanism="geometric")
    return release["release"]["text"].item()


def test_bits_of_the_system_follow_from_the_name_of_the_test(stated):
    assert os.urandom(8) + secrets.token_bytes(8) == stated(8) + stated(8)
    # A generator without a seed takes its own from them.
    other = np.random.default_rng(np.random.SeedSequence(int.from_bytes(stated(16))))
    assert np.random.default_rng().random() == other.random()


def test_a_release_is_the_same_in_every_run_and_another_in_each_call(monkeypatch, stated):
    first, second = release(), release()
    assert first != second
    monkeypatch.setattr(os, "urandom", stated)
    monkeypatch.setattr(random, "_urandom", stated)
    assert release() == first


seen = set()


@pytest.fixture(params=[1, 2])
def of_a_fixture(request):
    return os.urandom(8)


def test_each_parameter_of_a_fixture_has_its_own(of_a_fixture):
    assert of_a_fixture not in {os.urandom(8), *seen}
    seen.add(of_a_fixture)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_has_the_bits_of_the_system(stated):
    receiving, sending = os.pipe()
    if not (child := os.fork()):
        os.write(sending, os.urandom(8))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receiving, 8) not in (stated(8), os.urandom(8))
    os.close(receiving)
    os.close(sending)
