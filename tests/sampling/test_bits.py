"""Random words: where they come from, and that each is handed out once."""

import copy
import os
import pickle

import numpy as np
import pytest

from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.urn import urn


def take(bits, count):
    """The next words, as a reader that spends them in uneven pieces sees them."""
    seen, piece = [], 1
    while len(seen) < count:
        used = min(piece, bits.ahead().size, count - len(seen))
        seen.extend(bits.ahead()[:used].tolist())
        bits.spend(used)
        piece = 3 * piece % 1000 + 1
    return seen


def test_the_default_source_is_the_operating_system(monkeypatch):
    asked, real = [], os.urandom

    def urandom(size):
        asked.append(size)
        return real(size)

    monkeypatch.setattr(os, "urandom", urandom)
    words = take(Bits(), 30_000)
    assert sum(asked) >= 8 * 30_000
    assert len(set(words)) == len(words)
    urn(np.array([1, 1]), 1, steps=10, draws=1, bits=Bits(1))
    take(Bits(np.random.default_rng(1)), 30_000)
    calls = len(asked)
    urn(np.array([1, 1]), 1, steps=10, draws=1, bits=Bits())
    assert len(asked) == calls + 1


def test_two_sources_share_no_word():
    assert set(take(Bits(), 1000)).isdisjoint(take(Bits(), 1000))


@pytest.mark.parametrize("seed", [lambda: 7, lambda: np.random.SeedSequence(7), lambda: np.random.default_rng(7)])
def test_a_seed_fixes_the_words(seed):
    words = take(Bits(seed()), 20_000)
    assert words == take(Bits(seed()), 20_000)
    assert len(set(words)) == len(words)
    assert words != take(Bits(8), 20_000)


def test_every_bit_is_fair():
    """Ones among 100,000 words at each of the 64 places: six standard deviations, so p is about 1e-7 for all."""
    words = np.array(take(Bits(3), 100_000), dtype=np.uint64)
    ones = np.array([np.count_nonzero(words & np.uint64(1 << place)) for place in range(64)])
    assert np.all(np.abs(ones - 50_000) < 6 * np.sqrt(25_000))


def test_words_stay_ahead_until_they_are_spent():
    bits = Bits(5)
    first = bits.ahead().copy()
    assert np.array_equal(bits.ahead(), first)
    bits.spend(2)
    assert np.array_equal(bits.ahead(), first[2:])
    assert not bits.ahead().flags.writeable


def test_no_second_hand_on_the_same_words():
    bits = Bits()
    bits.ahead()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="same random words"):
            duplicate(bits)


def test_a_forked_process_takes_fresh_words(monkeypatch):
    bits = Bits()
    before = set(bits.ahead().tolist())
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert before.isdisjoint(bits.ahead().tolist())
