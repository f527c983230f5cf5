"""Compiled code is kept on disk, and does without where nothing can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pymc_dirdp
from pymc_dirdp.sampling.bits import compiled

CODE = """
import pymc_dirdp.sampling.discrete_noise as module
from pymc_dirdp.sampling.bits import Bits
assert module.__file__.startswith({root!r})
draws = module.compiled_draws()
noise = module._drawn(None, (3, 1, 0, 0), (100,), Bits(1), in_python=0)
print(noise.tolist(), sum(draws.stats.cache_hits.values()), type(draws._cache).__name__)
"""


@pytest.fixture
def copy(tmp_path):
    """The package elsewhere, so that its own directory of compiled files is left alone."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pymc_dirdp.__file__).parent, tmp_path / "pymc_dirdp", ignore=ignored)
    return tmp_path


def run(root, **variables):
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    code = CODE.format(root=str(root))
    answer = subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.rsplit(maxsplit=2)


@pytest.mark.thorough
def test_the_second_process_finds_what_the_first_compiled(copy):
    first = run(copy, NUMBA_CACHE_DIR=str(copy / "cache"))
    second = run(copy, NUMBA_CACHE_DIR=str(copy / "cache"))
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("0", "1")


@pytest.mark.thorough
def test_no_place_to_write(copy):
    """Files stand where the directories would be made, which stops the superuser too."""
    (copy / "pymc_dirdp" / "sampling" / "__pycache__").write_text("")
    nowhere = copy / "nowhere"
    nowhere.write_text("")
    places = ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "NUMBA_CACHE_DIR")
    noise, hits, cache = run(copy, **{place: str(nowhere / "deeper") for place in places})
    assert noise.startswith("[")
    assert (hits, cache) == ("0", "NullCache")


def test_other_errors_of_the_compiler_are_not_hidden(monkeypatch):
    import numba

    def broken(*given, **options):
        raise RuntimeError("out of order")

    monkeypatch.setattr(numba, "njit", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        compiled("int64(int64)", lambda x: x)
