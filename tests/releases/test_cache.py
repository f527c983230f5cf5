"""The cache of opened releases is bounded by bytes, and measures what they have computed since."""

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.releases import opened as opening
from pymc_dirdp.releases.cache import Cache, bytes_of

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
KB = 1000


def block(n=10 * KB):
    return np.zeros(n, dtype=np.uint8)


def test_what_was_used_last_stays():
    cache = Cache(35 * KB)
    for name in "abc":
        cache.put(name, block())
    assert cache.get("a") is not None
    cache.put("d", block())
    assert len(cache) == 3
    assert cache.get("b") is None
    assert [cache.get(name) is not None for name in "acd"] == [True] * 3
    cache.clear()
    assert len(cache) == 0
    assert cache.get("a") is None


def test_the_largest_alone_stays_until_there_is_another():
    cache, large = Cache(35 * KB), block(100 * KB)
    cache.put("small", block())
    cache.put("large", large)
    assert cache.get("small") is None
    assert cache.get("large") is large
    cache.put("small", block())
    assert cache.get("large") is None
    assert cache.get("small") is not None


def test_a_value_that_grows_is_measured_when_the_cache_is_used_again():
    """Values compute what follows from them after they were put: what is bounded is what they have become."""
    cache, growing = Cache(100 * KB), {"text": block(KB)}
    cache.put("before", block(KB))
    cache.put("growing", growing)
    growing["computed"] = block(90 * KB)
    cache.put("after", block(20 * KB))
    assert cache.get("before") is None
    assert cache.get("growing") is None
    assert cache.get("after") is not None
    # Also one that was put long ago, and grew when it was used again.
    cache, growing = Cache(100 * KB), {"text": block(KB)}
    cache.put("growing", growing)
    cache.put("other", block(KB))
    cache.get("growing")["computed"] = block(99 * KB)
    cache.get("growing")
    assert len(cache) == 1


def test_arrays_count_whole_and_once():
    whole = np.zeros(10**6)
    some, more = whole[:10], whole[5:500:2]
    # A part of an array keeps the whole of it.
    for value in (whole, [whole], [some], [whole, some], [some, whole], [some, more], {"a": some, "b": (more, whole)}):
        assert 8 * 10**6 <= bytes_of(value) < 8 * 10**6 + 2000
    assert bytes_of([np.zeros(1000), np.zeros(1000)]) >= 16_000


def test_what_a_release_has_computed_counts():
    cells = 2000
    with pm.Model():
        p = pm.Dirichlet("p", a=np.ones((cells, 4)))
        pm.Multinomial("x", n=np.full(cells, 4), p=p, observed=np.ones((cells, 4), int))
        release = dirdp.sample(APPROX, mechanism="geometric", contribution=1)
    stored = opening.open_release(release)
    before = bytes_of(stored)
    assert before >= len(stored.release.text)
    assert "draws" not in vars(stored)
    assert stored.draws["p"].nbytes == 8 * 4 * cells
    assert bytes_of(stored) - before >= 8 * 4 * cells
    middle = bytes_of(stored)
    stored.once("mine", lambda: block(10**6))
    assert 10**6 <= bytes_of(stored) - middle < 10**6 + 2000
