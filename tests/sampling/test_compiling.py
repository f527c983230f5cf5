"""Compiled code is kept on disk, and does without where nothing can be written."""

import runpy

import numba
import pytest

from pymc_dirdp.sampling.bits import compiled


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
