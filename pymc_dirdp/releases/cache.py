"""A cache whose size in bytes is bounded, including what its values compute later."""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any, final

import numpy as np

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


@final
class Cache[Key: Hashable, Value]:
    """Values by key. The least recently used values are removed first.

    Values cache results of their own, so they grow. The most recently used value is measured again at the next use.

    Parameters
    ----------
    max_bytes : int
        Maximum total size of all values. A single larger value stays until another one is added.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._bytes: dict[Key, int] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            if key not in self._values:
                return None
            value = self._values[key]
            self._use(key, value)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Add or replace the value of a key."""
        with self._lock:
            self._use(key, value)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._bytes.clear()

    def _use(self, key: Key, value: Value) -> None:
        # It may have grown since.
        last = next(reversed(self._values), key)
        self._values[key] = value
        self._values.move_to_end(key)
        for changed in {last, key}:
            self._bytes[changed] = bytes_of(self._values[changed])
        while len(self._values) > 1 and sum(self._bytes.values()) > self._max_bytes:
            oldest, _ = self._values.popitem(last=False)
            del self._bytes[oldest]


def bytes_of(value: Any) -> int:
    """The memory of a value of this package, with its arrays, texts and cached results.

    Shared objects are counted once, except texts and numbers within lists.
    """
    visited: set[int] = set()
    queue, size = [value], 0
    while queue:
        part = queue.pop()
        if id(part) in visited:
            continue
        if isinstance(part, np.ndarray) and isinstance(part.base, np.ndarray):
            # A view of an array keeps the whole array in memory.
            queue.append(part.base)
            continue
        visited.add(id(part))
        size += part.nbytes if isinstance(part, np.ndarray) else sys.getsizeof(part)
        parts: list[Any] = []
        if isinstance(part, Mapping):
            parts = [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            parts = list(part)
        elif type(part).__module__.partition(".")[0] == "pymc_dirdp":
            parts = list(getattr(part, "__dict__", {}).values())
        if set(map(type, parts)) <= _PLAIN:
            # Fast, because there may be a million labels.
            size += sum(map(sys.getsizeof, parts))
        else:
            queue += parts
    return size
