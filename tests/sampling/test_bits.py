"""Random words: where they come from, and that each is handed out once."""

import copy
import math
import os
import pickle
import random

import numpy as np
import pytest

from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import urn


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
    urn([[1, 1]], 0, steps=10, draws=1, bits=Bits(1))
    take(Bits(np.random.default_rng(1)), 30_000)
    calls = len(asked)
    urn([[1, 1]], 0, steps=10, draws=1, bits=Bits())
    assert len(asked) == calls + 1


class Written(Bits):
    """Words that are written down; the answers of `uniforms` are their leading bits."""

    def __init__(self, *words, size):
        super().__init__()
        # Half words stand side by side, in the order of the machine.
        self._words = np.array(words, dtype=f"u{size // 8}").view(np.uint64)

    def ahead(self, least=1):
        assert self._words.size - self._spent >= least
        return self._words[self._spent :]


@pytest.mark.parametrize(("size", "other"), [(32, 2**32), (64, 2**40)])
def test_many_uniforms_by_every_word(size, other):
    """Every word of four bits in front, for every limit: each number as often as the others, or drawn again."""
    for limit in range(1, 17):
        length = max(1, (limit - 1).bit_length())
        for word in range(16):
            leading = word >> 4 - length
            # What is drawn again finds a word of zeros.
            bits = Written(word << size - 4, 2**size - 1, 0, 0, size=size)
            values = bits.uniforms(np.array([limit, other]))
            assert values.tolist() == [leading if leading < limit else 0, other - 1]


def test_only_what_is_not_below_its_limit_is_drawn_again():
    """As often as it takes, and no word is used twice or passed over."""
    bits = Written(5 << 61, 7 << 61, 6 << 61, 2**64 - 1, 7 << 61, 4 << 61, 6 << 61, size=64)
    assert bits.uniforms(np.array([6, 7, 5, 2**40])).tolist() == [5, 6, 4, 2**40 - 1]
    assert bits._spent == 7


@pytest.mark.parametrize("seed", [lambda: 7, lambda: np.random.SeedSequence(7), lambda: np.random.default_rng(7)])
def test_a_seed_fixes_the_words(seed):
    words = take(Bits(seed()), 20_000)
    assert words == take(Bits(seed()), 20_000)
    assert len(set(words)) == len(words)
    assert words != take(Bits(8), 20_000)
    assert set(take(Bits(), 1000)).isdisjoint(take(Bits(), 1000))
    # Ones at each of the 64 places: six standard deviations, so p is about 1e-7 for all.
    ones = np.array([np.count_nonzero(np.array(words, dtype=np.uint64) & np.uint64(1 << place)) for place in range(64)])
    assert np.all(np.abs(ones - 10_000) < 6 * np.sqrt(5_000))


def test_no_second_hand_on_the_same_words():
    bits = Bits()
    bits.ahead()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="same random words"):
            duplicate(bits)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
# Other tests of the same run may have started threads; the child here only reads words.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("seed", [None, 3])
def test_a_forked_process_takes_fresh_words(seed):
    """Whichever way the parent had begun to take words, a child hands out none that the parent still has."""
    for begun in (lambda bits: bits.ahead(), lambda bits: bits.uniform(7)):
        bits = Bits(seed)
        begun(bits)
        mine = bits.ahead().tolist()
        for taken in (lambda bits: take(bits, 100), lambda bits: [bits.uniform(2**64) for _ in range(100)]):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                # Whatever happens, the child must not go on with the tests.
                try:
                    os.write(writer, b" ".join(b"%d" % word for word in taken(bits)))
                finally:
                    os._exit(0)
            os.close(writer)
            with open(reader, "rb") as pipe:
                theirs = [int(word) for word in pipe.read().split()]
            os.waitpid(child, 0)
            assert len(theirs) == 100
            assert set(mine).isdisjoint(theirs)
        assert bits.ahead().tolist() == mine


class Given(Bits):
    """These words and no others."""

    def __init__(self, words):
        super().__init__(0)
        self._words = np.array(words, dtype=np.uint64)

    def ahead(self, least=1):
        if self._words.size - self._spent < least:
            raise EOFError
        return self._words[self._spent :]


def uniform_of(words, n):
    """The number made of these words, and how many of them it took; None if they were not enough."""
    bits = Given(words)
    try:
        value = bits.uniform(n)
    except EOFError:
        return None, len(words)
    return value, bits._spent


def test_each_number_has_as_many_words():
    """All words of six bits: each number below n comes from as many of them, and all others are thrown away."""
    for n in range(1, 65):
        values = [uniform_of([word << 58 | 12345], n)[0] for word in range(64)]
        share = 64 >> (n - 1).bit_length()
        assert sorted(v for v in values if v is not None) == sorted(list(range(n)) * share)


@pytest.mark.parametrize("n", [2**63 + 1, 2**64 - 1, 2**64 + 1, 3 * 2**100, 10**90])
def test_the_first_number_that_is_none_is_thrown_away(n):
    length = (n - 1).bit_length()
    count = -(-length // 64)

    def words_of(value):
        whole = value << 64 * count - length
        return [whole >> 64 * (count - 1 - i) & 2**64 - 1 for i in range(count)]

    assert uniform_of(words_of(n - 1), n) == (n - 1, count)
    assert uniform_of([*words_of(n), *words_of(5)], n) == (5, 2 * count)


def test_the_ends_are_reached():
    for n in (2, 3, 2**40 + 1, 2**64, 2**70):
        count = math.ceil((n - 1).bit_length() / 64)
        assert uniform_of([0] * count, n)[0] == 0
    assert uniform_of([2**64 - 1] * 2, 2**128) == (2**128 - 1, 2)
    assert uniform_of([2**64 - 1, 0], 3) == (0, 2)
    assert uniform_of([], 1) == (0, 0)


def test_both_ways_of_taking_words_share_one_stream():
    """Words and numbers in turn, with blocks that are asked for in any size: each word comes once, in order."""
    whole, mixed, seen = take(Bits(5), 15_000), Bits(5), []
    rng = random.Random(1)
    while len(seen) < 14_000:
        if rng.random() < 0.5:
            seen += [mixed.uniform(2**64) for _ in range(rng.randrange(300))]
        else:
            least = rng.randrange(1, 20_000)
            ahead = mixed.ahead(least)
            assert ahead.size >= least
            assert not ahead.flags.writeable
            used = rng.randrange(300)
            seen += ahead[:used].tolist()
            mixed.spend(used)
    assert seen == whole[: len(seen)]
