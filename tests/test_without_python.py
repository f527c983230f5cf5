"""The page for readers of a release who have R or a spreadsheet: its code runs, and its figures are those of Python."""

import math
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.stats import chi2, chi2_contingency, kstest

import pymc_dirdp as dirdp
from pymc_dirdp.cli.main import main
from tests.sources import DOCS, PAGES, code_in

PAGE = PAGES["docs/without_python.md"]
CODE, OUTPUT = code_in(PAGE, "r"), code_in(PAGE, "text")
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
    labels = [f"{sex} and {hair}" for sex, hair in zip(cells["sex"], cells["hair"], strict=True)]
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
def test_the_code_of_the_page_prints_what_the_page_shows_and_reads_what_was_written_here(release, tmp_path):
    *base, of_draws, of_independence, of_json = CODE
    assert ("draws.csv" in of_draws, "pchisq" in of_independence, "jsonlite" in of_json) == (True,) * 3
    shutil.copy(DOCS / "_static" / "cells.csv", tmp_path)
    printed = in_r("\n".join(base), tmp_path)
    for output in OUTPUT:
        assert output in printed
    assert (tmp_path / "cells.pdf").read_bytes().startswith(b"%PDF")
    fresh = dirdp.estimate(release, [0.95]).tidy()
    fresh.to_csv(tmp_path / "cells.csv", index=False)
    code = "\n".join(CODE[:3]) + '\ncat(sprintf("%.17g", cells$share), cells$noisy_count, sep="\\n")'
    numbers = in_r(code, tmp_path).splitlines()[-16:]
    assert [float(x) for x in numbers[:8]] == pytest.approx(list(fresh["share"]), rel=1e-15)
    assert [int(x) for x in numbers[8:]] == list(fresh["noisy_count"])
    if in_r("cat(requireNamespace('jsonlite', quietly = TRUE))", tmp_path) == "TRUE":
        statement, counts = in_r(of_json, tmp_path).splitlines()
        assert statement.strip() == "0.5-differential privacy"
        assert [int(x) for x in counts.split()] == list(fresh["noisy_count"])


@pytest.fixture
def draws(release, tmp_path):
    """The files of the page, as its command writes them, and the draws, with women and men as the first axis."""
    files = ["--csv", str(tmp_path / "cells.csv"), "--out", str(tmp_path / "draws.csv")]
    assert main(["analyse", str(tmp_path / "release.json"), *files]) == 0
    return pd.read_csv(tmp_path / "draws.csv")


def statistic_of(tables):
    """What the page computes from draws of a table: how far the cells are from the products of the sums."""
    off = (tables - tables.sum(axis=2, keepdims=True) * tables.sum(axis=1, keepdims=True))[:, 1:, 1:]
    off = off.reshape(len(tables), -1)
    return off.mean(axis=0) @ np.linalg.solve(np.cov(off.T), off.mean(axis=0))


@pytest.mark.thorough
def test_r_computes_exact_intervals_and_a_test_of_independence(draws, tmp_path):
    """Oracle: NumPy, from the same draws."""
    printed = in_r("\n".join([*CODE[:2], *CODE[4:6]]), tmp_path)
    tables = draws.iloc[:, :8].to_numpy().reshape(-1, 2, 4)
    blond = tables[:, :, 3] / tables.sum(axis=2)
    shown = [line.split() for line in re.findall(r"^ *mean +2.5% +97.5% *\n(.*)", printed, re.MULTILINE)]
    for x, numbers in zip((blond[:, 0], blond[:, 0] - blond[:, 1]), shown, strict=True):
        expected = [x.mean(), *np.quantile(x, [0.025, 0.975])]
        assert list(map(float, numbers)) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    statistic = statistic_of(tables)
    said = re.search(r"chi-square (\S+) p (\S+)", printed)
    assert [float(said[1]), float(said[2])] == pytest.approx([statistic, chi2.sf(statistic, 3)], rel=1e-4)


def test_the_formulas_for_a_spreadsheet_name_the_right_columns(cells, draws):
    formulas = re.findall(r"`=(.*?)`", PAGE)
    assert formulas[0] == 'SUMIFS(F:F,C:C,"blond")'
    assert [list(cells.columns)["ABCDEFG".index(letter)] for letter in "FCG"] == ["share", "hair", "share_sd"]
    assert formulas[1] == "D2/SUM(A2:D2)"
    women = [f"share p_both[female and {hair}]" for hair in ("black", "brown", "red", "blond")]
    assert list(draws.columns[:4]) == women
    assert formulas[2].endswith("(Q2:Q4001)")
    assert draws.shape == (4000, "ABCDEFGHIJKLMNOPQ".index("Q"))


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_the_test_of_independence_has_its_level():
    """Oracle: tables of independent variables, where the p-value is uniform; noise that is ignored breaks it."""
    rng, shares = np.random.default_rng(1), np.outer([0.5, 0.3, 0.2], [0.4, 0.35, 0.25]).ravel()
    p_values, naive = [], []
    mechanism = dirdp.calibrate(dirdp.PureDP(epsilon=0.1), prior=np.ones(9), mechanism="geometric")
    for _ in range(40):
        noisy = mechanism.release(rng.multinomial(600, shares), random_seed=rng)
        output = dirdp.mechanisms.MechanismOutput(mechanism, noisy, prior=np.ones(9), n_records=600)
        tables = next(iter(dirdp.analyse(output, 500, random_seed=rng)["posterior"].values())).values
        p_values.append(chi2.sf(statistic_of(tables.reshape(-1, 3, 3)), 4))
        naive.append(chi2_contingency(np.maximum(noisy, 1).reshape(3, 3)).pvalue)
    assert kstest(p_values, "uniform").pvalue > 1e-3
    assert kstest(naive, "uniform").pvalue < 1e-6
