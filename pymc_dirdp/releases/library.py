"""The version of this library, for what it writes down of itself."""

from functools import cache
from importlib.metadata import version

__all__ = ["library_version"]


@cache
def library_version() -> str:
    """The version as it is installed; looked up once, because that takes a millisecond."""
    return version("pymc-dirdp")
