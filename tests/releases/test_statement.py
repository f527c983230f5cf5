"""What is printed under a published table: only what the file keeps, in words, and nothing that a page obeys."""

import json
import math

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.releases.statement import odds_factor

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
EVIL = "a|b`c<script>x&*_[y](z)$ https:evil www.evil.org"


def survey(name="p", observed="students", labels=("x", "y", "z")):
    with pm.Model(coords={"answer": list(labels)}) as model:
        p = pm.Dirichlet(name, np.ones(3), dims="answer")
        pm.Multinomial(observed, n=100, p=p, observed=[60, 30, 10], dims="answer")
    return model


def cells(markdown):
    """The cells of each row of the table, split at bars that no backslash escapes."""
    lines = markdown.splitlines()
    assert lines[1] == ""
    return [line.replace("\\\\", "").replace("\\|", "").split("|")[1:-1] for line in lines[2:]]


def test_a_statement_is_a_paragraph_and_a_table():
    release = dirdp.sample(TARGET, survey())
    found = dirdp.statement(release)
    text, lines = str(found), dict(found.lines)
    assert text.startswith("**Privacy.** p was published with differential privacy.")
    assert all(len(row) == 2 for row in cells(text))
    assert len(cells(text)) == len(found.lines) + 2
    assert lines["guarantee"] == str(TARGET)
    assert lines["protected"] == release["privacy"].attrs["protected"]
    assert "the number of records, and who took part" in lines["not protected"]
    assert f"typically off by {float(release['utility']['share_error'][0]):.2g}, " in lines["error of dirdp.estimate"]
    assert "pymc_dirdp.load(path) opens the file" in lines["to compute with it"]
    assert "pymc_dirdp.analyse(release)" in lines["to compute with it"]
    page = found._repr_html_()
    assert page.count("<tr>") == len(found.lines)
    assert "overflow-x:auto" in page


@pytest.mark.parametrize(
    ("guarantee", "options", "flavour", "loss"),
    [
        (TARGET, {}, "Approximate DP", (1.0, 1e-6)),
        (dirdp.PureDP(epsilon=0.5), {"mechanism": "geometric"}, "Pure DP", (0.5, 0.0)),
        (dirdp.RenyiDP(order=2, epsilon=0.5), {"draws": 3}, "Rényi DP", (None, 1e-6)),
        (dirdp.ZeroCDP(rho=0.1), {"mechanism": "gaussian"}, "Zero-concentrated DP", (None, 1e-6)),
        (dirdp.TruncatedCDP(rho=0.1, omega=9), {}, "Truncated concentrated DP", (None, 1e-6)),
    ],
)
def test_the_entry_has_the_columns_of_the_register_and_the_digest_of_the_plan(guarantee, options, flavour, loss):
    plan = dirdp.plan(guarantee, survey(), **options)
    release = dirdp.sample(plan, survey())
    entry = json.loads(dirdp.statement(release).to_json())
    assert list(entry) == [
        *("product", "description", "flavor", "unit", "epsilon", "delta", "parameters", "neighbours", "model"),
        *("accounting", "implementation", "version", "digest"),
    ]
    assert (entry["product"], entry["flavor"], entry["model"]) == ("p", flavour, "Central")
    assert (entry["digest"], entry["version"]) == (plan.digest, dirdp.__version__)
    epsilon, delta = loss
    assert entry["delta"] == delta
    # Any other kind is told as epsilon at a delta, from above.
    assert entry["epsilon"] == epsilon if epsilon else entry["epsilon"] >= plan.composition.epsilon(delta)
    assert plan.composition.epsilon(delta or 1e-9) <= entry["epsilon"] * (1 + 1e-5)


def test_a_seeded_release_says_loudly_that_it_is_not_private():
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = dirdp.sample(TARGET, survey(), random_seed=1)
    found = dirdp.statement(release)
    assert str(found).startswith("**NOT PRIVATE.**")
    assert "<strong>NOT PRIVATE.</strong>" in found._repr_html_()
    entry = json.loads(found.to_json())
    assert entry["flavor"].startswith("none")
    assert entry["epsilon"] is entry["delta"] is None
    for text in (str(found), found._repr_html_(), found.to_json()):
        assert "differential privacy" not in text
        assert "odds" not in text


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: tree["privacy"].attrs.update(epsilon=0.1),
        lambda tree: tree["privacy"].attrs.update(protected="everybody"),
        lambda tree: tree["mechanism/p"]["r"].values.__setitem__((), 0.9),
        lambda tree: tree.attrs.update(note="all answers are safe"),
        lambda tree: tree.attrs.pop("inference_library"),
    ],
)
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_a_release_that_does_not_verify_has_no_statement(edit, seed):
    release = dirdp.sample(TARGET, survey(), random_seed=seed)
    edit(release)
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.statement(release)


def test_hostile_names_are_shown_and_not_obeyed():
    found = dirdp.statement(dirdp.sample(TARGET, survey(EVIL, f"n {EVIL}")))
    text, page = str(found), found._repr_html_()
    assert all(len(row) == 2 for row in cells(text))
    shown = r"a\|b\`c&lt;script&gt;x&amp;\*\_\[y\](z)\$ https:evil www&#46;evil.org"
    assert shown in text
    assert "<" not in text
    assert "<script" not in page
    assert "a|b`c&lt;script&gt;x&amp;*_[y](z)$" in page
    assert json.loads(found.to_json())["product"] == EVIL


def test_labels_of_the_table_are_no_part_of_a_page():
    release = dirdp.sample(TARGET, survey(labels=("<b>|", "`", "\\")))
    found = dirdp.statement(release)
    assert "<b>" not in str(found) + found._repr_html_()
    assert found._repr_html_().isprintable()
    assert all(line.isprintable() for line in str(found).splitlines())


@pytest.mark.parametrize("sd", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_odds_rise_beyond_the_factor_as_seldom_as_it_says(sd, delta):
    """Oracle: the normal distribution of the loss of Gaussian noise on one count.

    By SciPy; the bound is not far above it.
    """

    class Gaussian:
        pure_epsilon = math.inf

        @staticmethod
        def epsilon(at):
            grid = np.linspace(0, 60, 60_001)
            m = 1 / sd
            deltas = stats.norm.cdf(m / 2 - grid / m) - np.exp(grid) * stats.norm.cdf(-m / 2 - grid / m)
            return float(grid[np.argmax(deltas <= at)])

    found = odds_factor(Gaussian(), delta)
    # Under the truth the loss is normal with mean 1 / (2 sd^2) and standard deviation 1 / sd.
    beyond = stats.norm.sf(found, 1 / (2 * sd**2), 1 / sd)
    assert beyond <= delta
    assert stats.norm.sf(found / 1.5, 1 / (2 * sd**2), 1 / sd) > delta


def test_a_bounded_loss_has_no_exception():
    mechanism = GeometricMechanism(np.ones(3), 2.0)
    assert odds_factor(mechanism, 1e-6) == mechanism.pure_epsilon
    release = dirdp.sample(dirdp.PureDP(epsilon=1.0), survey(), mechanism="geometric")
    odds = dict(dirdp.statement(release).lines)["odds of the truth"]
    assert odds == "times 2.72 at most, about the records of one person"


def test_under_add_remove_the_odds_are_about_being_in_the_data():
    """Two answers of one person are two steps apart there, so nothing is said of their odds."""
    release = dirdp.sample(TARGET, survey(), adjacency="add-remove", n_records=100)
    found = dirdp.statement(release)
    assert "whether the records of one person are in the data" in found.paragraph
    assert "who took part" not in dict(found.lines)["not protected"]


def test_a_statement_survives_a_file(tmp_path):
    import xarray as xr

    release = dirdp.sample(TARGET, survey())
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as read:
        assert dirdp.statement(read.load()) == dirdp.statement(release)
