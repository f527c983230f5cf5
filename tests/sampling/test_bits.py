"""Random words: where they come from, that each is handed out once, and what is drawn from them.

Numbers below a limit are enumerated by words of a few bits in `test_all_words.py`.
"""

import copy
import math
import os
import pickle
import random
import runpy
import sys
from fractions import Fraction
from importlib.machinery import PathFinder

import numba
import numpy as np
import pytest

from pymc_dirdp.sampling import bits as module
from pymc_dirdp.sampling.bits import Bits, children, chosen, compiled, generator, randomness
from pymc_dirdp.sampling.exact import urn
from tests.oracles import AgainError, distribution


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
    """These words of 64 bits, or half words side by side in the order of the machine, and no others."""

    def __init__(self, *words, size=64):
        super().__init__(0)
        self._words = np.array(words, dtype=f"u{size // 8}").view(np.uint64)

    def ahead(self, least=1):
        assert self._words.size - self._spent >= least
        return self._words[self._spent :]


@pytest.mark.parametrize(("size", "other"), [(32, 2**32), (64, 2**33)])
def test_many_uniforms_by_every_word(size, other):
    """Every word of four bits in front, for every limit: each number as often as the others, or drawn again."""
    for limit in range(1, 17):
        length = max(1, (limit - 1).bit_length())
        for word in range(16):
            leading = word >> 4 - length
            # What is drawn again finds a word of zeros.
            bits = Given(word << size - 4, 2**size - 1, 0, 0, size=size)
            values = bits.uniforms(np.array([limit, other]))
            assert values.tolist() == [leading if leading < limit else 0, other - 1]
    # As often as it takes, and no word is used twice or passed over.
    bits = Given(5 << 61, 7 << 61, 6 << 61, 2**64 - 1, 7 << 61, 4 << 61, 6 << 61)
    assert bits.uniforms(np.array([6, 7, 5, 2**40])).tolist() == [5, 6, 4, 2**40 - 1]
    assert bits._spent == 7


def test_both_ways_of_taking_words_share_one_stream():
    """Words and numbers in turn, with blocks that are asked for in any size: each word comes once, in order."""
    whole, mixed, seen = take(Bits(5), 15_000), Bits(5), []
    assert Bits(5).ahead(20_000).size >= 20_000
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


# The exponential mechanism.


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ([0, 1, 3], Fraction(2)),
        ([5, 5], Fraction(1, 3)),
        ([-4, 0, -1, -1], Fraction(3, 2)),
        ([7], Fraction(1)),
        ([10**30, 10**30 - 1], Fraction(1)),
    ],
)
def test_every_choice_has_its_probability(scores, scale, monkeypatch):
    """By all choices; the coin is one of them, see `test_discrete_noise.py`. What is rejected ends the draw."""

    def coin(uniform, a, b):
        assert 0 <= a <= b
        return uniform.__self__.coin(Fraction(math.exp(-a / b)))

    def only_once(uniform, a, b, accepted=module._accepted):
        if not accepted(uniform, a, b):
            raise AgainError
        return True

    monkeypatch.setattr(module, "exponential_coin", coin)
    monkeypatch.setattr(module, "_accepted", only_once)
    found, _ = distribution(lambda tape: chosen(scores, scale, tape), left=Fraction(1, 10**9))
    accepted = 1 - found.pop("again", 0)
    weights = [math.exp((score - max(scores)) / scale) for score in scores]
    shares = [float(found[position] / accepted) for position in range(len(scores))]
    np.testing.assert_allclose(shares, np.array(weights) / sum(weights), rtol=1e-6)


def test_far_scores_are_never_chosen_and_cost_no_time():
    bits = Bits()
    assert all(chosen([0, -(10**400), 10**9], Fraction(1, 10**6), bits) == 2 for _ in range(100))
    assert {chosen([3] * 4, Fraction(10**40), bits) for _ in range(100)} == {0, 1, 2, 3}
    assert [chosen([0, 1, 2], Fraction(1), Bits(9)) for _ in range(3)] == [chosen([0, 1, 2], Fraction(1), Bits(9))] * 3


# The generator of fast draws: AES in counter mode, and the words that say so.


def test_it_is_aes_with_a_key_and_a_counter_of_the_operating_system(monkeypatch):
    """The example of FIPS 197, appendix C.1: the first block of the stream is the encrypted counter."""
    key = int.from_bytes(bytes(range(16)), "little")
    plain = int.from_bytes(bytes.fromhex("00112233445566778899aabbccddeeff"), "little")
    block = module._aes(key, plain).bit_generator.random_raw(2).astype("<u8").tobytes()
    assert block.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    asked = []
    monkeypatch.setattr(module.secrets, "randbits", lambda count: asked.append(count) or 2**count - 2 - len(asked))
    state = generator().bit_generator.state["s"]
    assert asked == [128, 128]
    assert state["seed"][:2].tolist() == [2**64 - 3, 2**64 - 1]
    assert state["counter"][:2].tolist() == [2**64 - 4, 2**64 - 1]


def test_what_a_release_says_of_its_bits():
    assert type(generator().bit_generator).__name__ == "AESCounter"
    assert randomness(None, sampler="fast") == "AES-128-CTR keyed by the operating system"
    assert randomness(None, sampler="exact") == "operating system"
    for seed in (0, 5, np.random.SeedSequence(1), np.random.default_rng(1)):
        assert randomness(seed, sampler="fast") == randomness(seed, sampler="exact") == "seed"
    assert isinstance(generator(3).bit_generator, np.random.PCG64)
    assert generator(3).random() == np.random.default_rng(3).random()
    rng = np.random.default_rng(1)
    assert generator(rng) is rng


def test_without_the_package_a_release_says_that_too(monkeypatch):
    """As if the optional package were not installed."""
    with monkeypatch.context() as patched:
        patched.setattr(PathFinder, "find_spec", lambda name, *rest: None)
        patched.delitem(sys.modules, "randomgen", raising=False)
        module._has_aes.cache_clear()
        assert isinstance(generator().bit_generator, np.random.PCG64)
        assert randomness(None, sampler="fast").startswith("PCG64")
        assert "can be recovered" in randomness(None, sampler="fast")
        assert randomness(None, sampler="exact") == "operating system"
    module._has_aes.cache_clear()


@pytest.mark.parametrize("make", [generator, lambda: generator(7), lambda: np.random.Generator(np.random.MT19937(2))])
def test_children_differ_from_each_other_and_from_their_parent(make):
    rng = make()
    family = [*children(rng, 3), *children(rng, 2), rng]
    assert len({int(member.integers(2**63)) for member in family}) == 6
    if type(rng.bit_generator).__name__ == "AESCounter":
        assert {type(child.bit_generator) for child in family} == {type(rng.bit_generator)}
        states = [child.bit_generator.state["s"] for child in children(rng, 50)]
        assert len({state[part][:2].tobytes() for state in states for part in ("seed", "counter")}) == 100
    one, other = np.random.default_rng(4), np.random.default_rng(4)
    assert [child.random() for child in children(one, 3)] == [child.random() for child in children(other, 3)]


# Compiled code is stored on disk, and does without where nothing can be written.


@pytest.fixture
def double(tmp_path):
    """A function of a file beside which compiled files may be written."""
    file = tmp_path / "module.py"
    file.write_text("def helper(x):\n    return x\n\n\ndef double(x):\n    return x + helper(x)\n")
    space = runpy.run_path(str(file))
    return space["double"], space["helper"]


def test_what_is_compiled_once_is_found_again(double, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    first, second = (compiled("int64(int64)", *double) for _ in range(2))
    assert first(21) == second(21) == 42
    assert [sum(code.stats.cache_hits.values()) for code in (first, second)] == [0, 1]
    assert list((tmp_path / "cache").rglob("*.nbi"))


def test_no_place_to_write(double, tmp_path, monkeypatch):
    """Files stand where the directories would be made, which stops the superuser too."""
    (tmp_path / "__pycache__").write_text("")
    (tmp_path / "nowhere").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    for place in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(place, str(tmp_path / "nowhere" / "deeper"))
    code = compiled("int64(int64)", *double)
    assert code(21) == 42
    assert type(code._cache).__name__ == "NullCache"


def test_other_errors_of_the_compiler_are_not_hidden(monkeypatch):
    def broken(*given, **options):
        raise RuntimeError("out of order")

    monkeypatch.setattr(numba, "njit", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        compiled("int64(int64)", lambda x: x)
