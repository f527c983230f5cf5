"""A cache that is bounded by the bytes of what it holds, and of all that was computed of it since."""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from threading import Lock
from typing import Any, final

import numpy as np

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


@final
class Cache[Key: Hashable, Value]:
    """Values by their keys, of which those that were used last stay.

    Values compute what follows from them when it is asked for, so they grow: the one that was used last is measured
    when the cache is used again.

    Parameters
    ----------
    most_bytes : int
        What all values take together at most. A single larger value stays until there is another one.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._bytes: dict[Key, int] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which was used last from now on; None without one."""
        with self._lock:
            if key not in self._values:
                return None
            value = self._values[key]
            self._use(key, value)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Hold a value, in the place of another one of this key."""
        with self._lock:
            self._use(key, value)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self._bytes.clear()

    def _use(self, key: Key, value: Value) -> None:
        # It may have grown since.
        last = next(reversed(self._values), key)
        self._values[key] = value
        self._values.move_to_end(key)
        for used in {last, key}:
            self._bytes[used] = bytes_of(self._values[used])
        while len(self._values) > 1 and sum(self._bytes.values()) > self._most_bytes:
            oldest, _ = self._values.popitem(last=False)
            del self._bytes[oldest]


def bytes_of(value: Any) -> int:
    """The memory of a value of this package, with its arrays, texts and all that it has computed.

    What two places share is counted once, but for texts and numbers within lists.
    """
    return _bytes_of(value, set())


def _bytes_of(value: Any, seen: set[int]) -> int:
    kind = type(value)
    if kind in _PLAIN:
        return sys.getsizeof(value)
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        # A part of an array keeps the whole of it.
        whole = value if value.base is None or not isinstance(value.base, np.ndarray) else value.base
        repeated = whole is not value and id(whole) in seen
        seen.add(id(whole))
        return 0 if repeated else whole.nbytes
    if isinstance(value, Mapping):
        return sys.getsizeof(value) + _bytes_of_all([*value.keys(), *value.values()], seen)
    if isinstance(value, list | tuple | set | frozenset):
        return sys.getsizeof(value) + _bytes_of_all(value, seen)
    if kind.__module__.partition(".")[0] == "pymc_dirdp":
        return sys.getsizeof(value) + _bytes_of_all(getattr(value, "__dict__", {}).values(), seen)
    return sys.getsizeof(value)


def _bytes_of_all(values: Iterable[Any], seen: set[int]) -> int:
    several = list(values)
    if set(map(type, several)) <= _PLAIN:
        # A million labels in a moment.
        return sum(map(sys.getsizeof, several))
    return sum(_bytes_of(value, seen) for value in several)
