"""The page on a diagnosis: confidential wherever it can be seen, and its numbers are those of the diagnosis."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
RATES = np.array([[601, 332], [370, 215], [22, 896], [3, 2]])


def admissions():
    with pm.Model(coords={"department": ["A", "<b>", "C|", "small"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims="department")
        pm.Binomial("admitted", n=RATES.sum(axis=1), p=rate, observed=RATES[:, 0], dims="department")
    return model


@pytest.fixture(scope="module")
def diagnoses():
    model = admissions()
    options = {"contribution": 1, "public": ["admitted"]}
    return {
        mechanism: dirdp.diagnose(
            planned_sample(TARGET, model, mechanism=mechanism, **options), model, draws=200, chains=2, random_seed=1
        )
        for mechanism in ("dirichlet", "geometric")
    }


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_the_page_is_marked_wherever_it_can_be_seen(diagnoses, mechanism):
    found = dirdp.report(diagnoses[mechanism])
    assert found.title.startswith("CONFIDENTIAL, do not publish")
    guarantee, *others = found.sections
    assert guarantee[0] == "Guarantee of the release"
    assert dict(guarantee[1])["guarantee"] == str(TARGET)
    # The guarantee is public; no count stands there.
    assert "601" not in str(guarantee)
    assert others
    assert all(heading.startswith("CONFIDENTIAL, do not publish: ") for heading, _ in others)
    text, page = str(found), found._repr_html_()
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("CONFIDENTIAL") == page.count("CONFIDENTIAL") == 1 + len(others)
    assert "<b>" not in page


def test_the_numbers_are_those_of_the_diagnosis_and_the_smallest_cells_come_first(diagnoses):
    diagnosis = diagnoses["dirichlet"]
    sections = {heading.split(": ")[-1]: lines for heading, lines in dirdp.report(diagnosis).sections}
    errors, realised = dict(sections["errors of this release"]), diagnosis["realised"]
    for label, what in (("KL of the draw", "kl_release"), ("KL of the posteriors", "kl_posterior")):
        assert errors[label].startswith(f"{realised[what].item():.3g} nats, expected without the data ")
        assert f" {realised[f'{what}_expected'].item():.3g}" in errors[label]
        assert f"{100 * realised[f'{what}_rank'].item():.0f} % of " in errors[label]
    assert errors["KL of the estimate"].startswith(f"{realised['kl_estimate'].item():.3g} nats, ")
    cells, groups = sections["the smallest cells"], sections["the smallest groups"]
    assert [label for label, _ in cells[:3]] == ["rate[small, failure]", "rate[small, success]", "rate[C|, success]"]
    text, bias = cells[0][1], diagnosis["cells/rate"]["bias_of_draw"].isel(department=3, rate_outcome=1).item()
    assert text.startswith("2 records, a share of 0.4, released as ")
    assert text.endswith(f"the mean of the draw by {bias:+.2g} ({100 * bias / 0.4:+.0f} %)")
    assert [label for label, _ in groups] == ["rate[small]", "rate[<b>]", "rate[C|]"]
    assert groups[0][1].startswith("5 records, ")


def test_a_table_without_records_has_a_page_too():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("n", n=0, p=p, observed=[0, 0, 0])
    for mechanism in ("dirichlet", "geometric"):
        diagnosis = dirdp.diagnose(dirdp.sample(TARGET, model, mechanism=mechanism), model, draws=100, chains=1)
        assert "a row without records" in str(dirdp.report(diagnosis))


@pytest.mark.parametrize(("n_records", "known"), [(600, True), (None, False)])
def test_with_a_private_number_of_records_the_estimate_is_that_of_the_plan_if_it_has_a_size(n_records, known):
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("n", n=500, p=p, observed=[250, 200, 50])
    release = dirdp.sample(
        TARGET, model, adjacency="add-remove", n_records=n_records, mechanism=Dirichlet(strategy="temper")
    )
    diagnosis = dirdp.diagnose(release, model, draws=100, chains=1)
    text = " ".join(str(dirdp.report(diagnosis)).split())
    assert ("KL of the estimate unknown nats" in text) != known
    assert "nan" not in text
    if known:
        means = dirdp.estimate(release, n_prior=1200).tables["p"].share_means
        np.testing.assert_allclose(diagnosis["cells/p"]["estimate"], means, atol=0.01)
