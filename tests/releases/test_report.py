"""What a report says in words: to whom the promise is made, and when it gives advice."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.planning.choosing import rank

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def words(plan):
    return " ".join(str(dirdp.report(plan)).split())


def survey(n_records):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Multinomial("answers", n=n_records, p=p, observed=[n_records - 10, 7, 3])
    return model


@pytest.mark.parametrize(
    ("options", "said", "other"),
    [
        ({}, "with a different answer from that person", "no record in the data"),
        (
            {"adjacency": "add-remove", "n_records": 100},
            "with no record in the data at all from that person",
            "a different answer",
        ),
    ],
    ids=["replace-one", "add-remove"],
)
def test_the_promise_is_told_in_the_words_of_its_adjacency(options, said, other):
    text = words(dirdp.plan(TARGET, survey(100), **options))
    assert f"as it would be {said}" in text
    assert other not in text


def test_noise_is_advised_where_it_is_better_by_a_quarter_and_not_where_it_is_about_as_good():
    """Oracle: the losses themselves; both sides of the threshold occur, near to it."""
    margins = []
    for n_records in (35, 40, 45, 50, 55):
        plan = dirdp.plan(TARGET, survey(n_records))
        (part,) = plan.parts
        options = {"prior": np.ones((1, 3)), "n_records": n_records, "adjacency": "replace-one"}
        margins.append(
            rank(part.mechanism, TARGET, **options, objective="posterior", cells=100_000).margin("dirichlet")
        )
        assert ("would lose" in words(plan)) == (margins[-1] > 1.25)
    assert any(1.05 < margin < 1.25 for margin in margins)
    assert any(1.25 < margin < 1.4 for margin in margins)
