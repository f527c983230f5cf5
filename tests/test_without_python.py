"""The page for readers of a release who have R or a spreadsheet: its code runs, and its figures are those of Python."""

import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pymc_dirdp as dirdp

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "without_python.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```r\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
OUTPUT = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
NUMBERS = re.compile(r"\d+\.\d+")


@pytest.fixture
def cells():
    return pd.read_csv(DOCS / "_static" / "cells.csv")


def in_r(code, folder):
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    (folder / "page.R").write_text(code, encoding="utf-8")
    done = subprocess.run(["Rscript", "--vanilla", "page.R"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_figures_of_the_page(cells):
    """Oracle: Python, from the same table."""
    table, total, ratio = OUTPUT
    ends = cells[["share", "share_low_0.95", "share_high_0.95"]].to_numpy() * 100
    assert [float(x) for x in NUMBERS.findall(table)] == [float(f"{x:.1f}") for x in ends.ravel()]
    blond = cells[cells["hair"] == "blond"]
    share, sd = blond["share"].sum(), blond["share_sd"].sum()
    expected = f"blond: {share:.3f}, at most {share - 1.96 * sd:.3f} to {share + 1.96 * sd:.3f}\n"
    assert total == expected
    (a, b), (sd_a, sd_b) = blond["share"], blond["share_sd"]
    log_sd = sd_a / a + sd_b / b
    ends = a / b * math.exp(-1.96 * log_sd), a / b * math.exp(1.96 * log_sd)
    assert ratio == f"women to men among the blond: {a / b:.2f}, at most {ends[0]:.2f} to {ends[1]:.2f}\n"


@pytest.fixture
def release(cells, tmp_path):
    """A new release of the same table, in the files that the page names."""
    labels = [f"{sex} and {hair}" for sex, hair in zip(cells["sex"], cells["hair"], strict=True)]
    import pymc as pm

    with pm.Model(coords={"sex and hair": labels}) as model:
        p = pm.Dirichlet("p_both", np.ones(8), dims="sex and hair")
        pm.Multinomial("n_both", n=592, p=p, observed=[52, 143, 37, 81, 56, 143, 34, 46])
    release = dirdp.sample(dirdp.PureDP(epsilon=0.5), model, mechanism="geometric")
    dirdp.save(release, tmp_path / "release.json")
    return release


def test_what_the_page_says_of_the_table(cells, release):
    """Each column is on the page, and the table of the page is such as this version of the library writes."""
    fresh = dirdp.estimate(release, [0.95]).tidy()
    assert list(fresh.columns) == list(cells.columns)
    assert fresh[["table", "sex", "hair"]].to_numpy().tolist() == cells[["table", "sex", "hair"]].to_numpy().tolist()
    listed = PAGE.partition("| column | meaning |")[2].partition("\n\n")[0]
    for name in set(cells.columns) - {"sex", "hair", "count_low_0.95", "count_high_0.95"}:
        assert f"`{name}`" in listed
    assert cells["noisy_count"].sum() == 592
    assert np.allclose(cells["share_sd"], fresh["share_sd"], rtol=0.6)


def test_bounds_of_sums_and_ratios_are_no_narrower_than_the_intervals_of_draws(release):
    """Oracle: draws of `analyse`, for every pair of cells."""
    shares = dirdp.analyse(release, 2000, random_seed=1)["posterior"]["p_both"].values.reshape(-1, 8)
    sds = dirdp.estimate(release, [0.95]).tidy()["share_sd"].to_numpy()
    for i in range(8):
        for j in range(i):
            assert (shares[:, i] + shares[:, j]).std() <= 1.03 * (sds[i] + sds[j])
            if min(shares[:, [i, j]].mean(axis=0) / sds[[i, j]]) >= 4:
                relative = sds[[i, j]] / shares[:, [i, j]].mean(axis=0)
                assert np.log(shares[:, i] / shares[:, j]).std() <= 1.1 * relative.sum()


@pytest.mark.thorough
def test_the_code_of_the_page_prints_what_the_page_shows(tmp_path):
    *base, of_json = CODE
    assert "jsonlite" in of_json
    shutil.copy(DOCS / "_static" / "cells.csv", tmp_path)
    printed = in_r("\n".join(base), tmp_path)
    for output in OUTPUT:
        assert output in printed
    assert (tmp_path / "cells.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.thorough
def test_r_reads_a_table_that_was_written_here(release, tmp_path):
    dirdp.estimate(release, [0.95]).tidy().to_csv(tmp_path / "cells.csv", index=False)
    code = "\n".join(CODE[:3]) + '\ncat(sprintf("%.17g", cells$share), cells$noisy_count, sep="\\n")'
    printed = in_r(code, tmp_path).splitlines()[-16:]
    fresh = dirdp.estimate(release, [0.95]).tidy()
    assert [float(x) for x in printed[:8]] == pytest.approx(list(fresh["share"]), rel=1e-15)
    assert [int(x) for x in printed[8:]] == list(fresh["noisy_count"])


@pytest.mark.thorough
def test_r_reads_the_file_of_a_release(release, tmp_path):
    has = "cat(requireNamespace('jsonlite', quietly = TRUE))"
    if in_r(has, tmp_path) != "TRUE":
        pytest.skip("jsonlite is not installed")
    statement, counts = in_r(CODE[-1], tmp_path).splitlines()
    assert statement.strip() == "0.5-differential privacy"
    assert [int(x) for x in counts.split()] == list(dirdp.estimate(release, [0.95]).tidy()["noisy_count"])
