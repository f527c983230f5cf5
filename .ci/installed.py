"""A first session with an installed package: a release, a file, what anybody makes of it, and the command line."""

import platform
import re
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp

start = time.perf_counter()
assert find_spec("pytest") is None, "This environment holds more than the package brings along."
assert "site-packages" in dirdp.__file__, dirdp.__file__
with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
dirdp.save(plan, "first.json")
release = dirdp.sample(dirdp.load("first.json"), model)
dirdp.save(release, "release.nc")
back = dirdp.load("release.nc")
assert dirdp.verify(back)
assert str(dirdp.report(back)) == str(dirdp.report(release))
assert np.array_equal(back["posterior"]["p"].values, release["posterior"]["p"].values)
here, there = (dirdp.analyse(tree, random_seed=1)["posterior"]["p"] for tree in (release, back))
assert here.identical(there)
assert str(dirdp.estimate(back)) == str(dirdp.estimate(release))
session = time.perf_counter() - start

# The commands of the page, as they stand there.
page = Path("command_line.md").read_text(encoding="utf-8")
toml, text, shell = (
    re.search(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1] for kind in ("toml", "text", "shell")
)
Path("survey.toml").write_text(toml, encoding="utf-8")
Path("survey.csv").write_text(text, encoding="utf-8")
for line in shell.splitlines():
    command, *words = line.split()
    subprocess.run([Path(sys.executable).with_name(command), *words], check=True, stdout=subprocess.DEVNULL)
assert dirdp.verify(dirdp.load("release.json"))

names = ("pymc-dirdp", "pymc", "pytensor", "arviz", "xarray", "numpy", "scipy", "pandas", "h5netcdf", "h5py")
print(f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names))
print(f"session {session:.1f} s, {len(shell.splitlines())} commands {time.perf_counter() - start - session:.1f} s")
