"""The generator of fast draws: AES in counter mode, and the words that say so."""

import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest

from pymc_dirdp.sampling import bits as entropy
from pymc_dirdp.sampling.bits import children, generator, randomness


@pytest.fixture
def without_randomgen(monkeypatch):
    """As if the optional package were not installed."""
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, *rest: None)
    monkeypatch.delitem(sys.modules, "randomgen", raising=False)
    entropy._has_aes.cache_clear()
    yield
    entropy._has_aes.cache_clear()


def test_it_is_aes():
    """The example of FIPS 197, appendix C.1: the first block of the stream is the encrypted counter."""
    from randomgen import AESCounter

    key = bytes(range(16))
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    source = AESCounter(key=int.from_bytes(key, "little"), counter=int.from_bytes(plain, "little"))
    block = source.random_raw(2).astype("<u8").tobytes()
    assert block.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_key_and_counter_come_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(entropy.secrets, "randbits", lambda count: asked.append(count) or 2**count - 2 - len(asked))
    rng = generator()
    assert asked == [128, 128]
    state = rng.bit_generator.state["s"]
    assert state["seed"][:2].tolist() == [2**64 - 3, 2**64 - 1]
    assert state["counter"][:2].tolist() == [2**64 - 4, 2**64 - 1]


def test_a_seed_means_what_it_did():
    assert isinstance(generator(3).bit_generator, np.random.PCG64)
    assert generator(3).random() == np.random.default_rng(3).random()
    rng = np.random.default_rng(1)
    assert generator(rng) is rng


def test_what_a_release_says():
    assert type(generator().bit_generator).__name__ == "AESCounter"
    assert randomness(None, sampler="fast") == "AES-128-CTR keyed by the operating system"
    assert randomness(None, sampler="exact") == "operating system"
    for seed in (0, 5, np.random.SeedSequence(1), np.random.default_rng(1)):
        assert randomness(seed, sampler="fast") == randomness(seed, sampler="exact") == "seed"


def test_without_the_package_a_release_says_that_too(without_randomgen):
    assert isinstance(generator().bit_generator, np.random.PCG64)
    assert randomness(None, sampler="fast").startswith("PCG64")
    assert "can be recovered" in randomness(None, sampler="fast")
    assert randomness(None, sampler="exact") == "operating system"


@pytest.mark.parametrize("make", [generator, lambda: generator(7), lambda: np.random.Generator(np.random.MT19937(2))])
def test_children_differ_from_each_other_and_from_their_parent(make):
    rng = make()
    family = [*children(rng, 3), *children(rng, 2), rng]
    assert len({int(member.integers(2**63)) for member in family}) == 6
    one, other = np.random.default_rng(4), np.random.default_rng(4)
    assert [child.random() for child in children(one, 3)] == [child.random() for child in children(other, 3)]


def test_children_of_aes_are_aes_with_keys_of_its_stream():
    kinds = {type(child.bit_generator) for child in children(generator(), 3)}
    assert kinds == {type(generator().bit_generator)}
    keys = {child.bit_generator.state["s"]["seed"][:2].tobytes() for child in children(generator(), 50)}
    assert len(keys) == 50
