"""Seeds, second releases without a ledger, and weak guarantees warn at the user's own line."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import (
    CategoriesFromDataWarning,
    FewRecordsWarning,
    RepeatedReleaseWarning,
    SeededReleaseWarning,
    WeakGuaranteeWarning,
)
from tests.planned import one_row, planned_sample

TARGET, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.PureDP(epsilon=1.0)


def warned(verb, *args, ignored=None, **options):
    """The kinds of warnings of a call and their texts, all at the line of the user who calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if ignored:
            warnings.simplefilter("ignore", ignored)
        verb(*args, **options)
    assert {warning.filename for warning in caught} <= {__file__}
    return [warning.category for warning in caught], " ".join(str(warning.message) for warning in caught)


def counted(labels, counts):
    if labels:
        return one_row(counts, labels=labels, dim="answer")
    with pm.Model() as model:
        pm.Multinomial("x", n=int(np.sum(counts)), p=pm.Dirichlet("p", a=np.ones(len(counts))), observed=counts)
    return model


def released(model, **options):
    return dirdp.sample(PURE, model, mechanism="geometric", **options)


def test_a_seed_and_a_second_release_without_a_ledger_warn():
    model = one_row([4, 6, 10], [1.0, 2.0, 3.5])
    kinds, said = warned(released, model, random_seed=1, ignored=RepeatedReleaseWarning)
    assert kinds == [SeededReleaseWarning]
    assert "not private" in said
    of_all = [warned(released, model, ignored=SeededReleaseWarning) for _ in range(3)]
    of_all.append(warned(released, model, ledger=dirdp.Ledger(dirdp.PureDP(epsilon=5))))
    assert [kinds for kinds, _ in of_all] == [[], [RepeatedReleaseWarning], [], []]
    assert "ledger=" in of_all[1][1]


def test_labels_in_the_order_of_their_counts_warn_the_curator():
    """Four labels or more, of which the first are not in the order of an alphabet or of numbers; rows are summed."""
    answers = pd.Series(["no"] * 11 + ["yes"] * 40 + ["never"] * 23 + ["perhaps"] * 17).value_counts()
    cases = [
        (list(answers.index), answers.to_numpy(), True),
        ([3, 1, 0, 2], [9, 8, 4, 1], True),
        (["yes", "no", "never", "perhaps"], [9, 8, 8, 1], False),
        (["yes", "no", "never"], [9, 8, 1], False),
        (None, [9, 8, 4, 1], False),
        ([0, 1, 2, 3], [9, 8, 4, 1], False),
    ]
    for labels, counts, descends in cases:
        kinds, said = warned(released, counted(labels, counts), ignored=RepeatedReleaseWarning)
        assert kinds == [CategoriesFromDataWarning] * descends, (labels, counts)
        assert ("'p' descend along the dim 'answer'" in said) == descends
        assert not set("0123456789") & set(said), "no number of the data"
    for second, descends in (([2, 6], True), ([2, 8], False)):
        counts = 5 * np.array([[5, 4], second, [3, 4], [0, 1]])
        with pm.Model(coords={"place": list("dacb"), "answer": ["no", "yes"]}) as model:
            p = pm.Dirichlet("p", a=np.ones((4, 2)), dims=("place", "answer"))
            pm.Multinomial("answers", n=np.sum(counts, axis=1), p=p, observed=counts)
        assert warned(released, model, ignored=RepeatedReleaseWarning)[0] == [CategoriesFromDataWarning] * descends


@pytest.mark.parametrize(
    ("guarantee", "options", "said"),
    [
        (dirdp.ApproxDP(epsilon=1.0, delta=0.1), {}, "delta=0.1 is not below one over the number of records"),
        (dirdp.ApproxDP(epsilon=1.0, delta=0.01), {}, "such as 0.001"),
        # Under add-remove the delta that is proposed follows from the number to plan for, which is public.
        (dirdp.ApproxDP(epsilon=1, delta=0.1), {"adjacency": "add-remove", "n_records": 5000}, "such as 1e-05"),
        (dirdp.ApproxDP(epsilon=50.0, delta=1e-6), {}, "epsilon=50 is above 10"),
        (dirdp.ApproxDP(epsilon=1.0, delta=0.0099), {}, None),
        (dirdp.ApproxDP(epsilon=10.0, delta=1e-6), {}, None),
        (dirdp.TruncatedCDP(rho=20.0, omega=5), {}, None),
    ],
)
def test_a_weak_guarantee_warns_where_the_user_calls(guarantee, options, said):
    model, options = counted(None, [40, 60]), options | {"mechanism": "gaussian"}
    kinds, text = warned(dirdp.sample, guarantee, model, ignored=RepeatedReleaseWarning, **options)
    assert kinds == [WeakGuaranteeWarning] * (said is not None)
    assert (said or "") in text
    assert not options.get("n_records") or "100" not in text


@pytest.mark.parametrize(
    ("cells", "mechanism", "adjacency"),
    [
        (360, "geometric", "replace-one"),
        (360, "geometric", "add-remove"),
        (18, "dirichlet", "add-remove"),
        (19, "auto", "replace-one"),
    ],
)
def test_a_table_of_few_records_warns_before_it_is_paid_for(cells, mechanism, adjacency):
    private, few = adjacency == "add-remove", cells > 18
    model = counted(None, np.bincount(np.arange(90 + 7 * private) % cells, minlength=cells))
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5), adjacency=adjacency)
    options = {"mechanism": mechanism, "adjacency": adjacency} | ({"n_records": 90} if private else {})
    kinds, said = warned(dirdp.plan, TARGET, model, **options)
    assert kinds == [FewRecordsWarning] * few
    assert (f"{cells} cells for {'the ' * private}90 records" in said) == ("at most 18 cells" in said) == few
    assert "97" not in said
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewRecordsWarning)
        if few:
            with pytest.raises(FewRecordsWarning):
                planned_sample(TARGET, model, ledger=ledger, **options)
        else:
            planned_sample(TARGET, model, ledger=ledger, **options)
    assert len(ledger.entries()) == (not few)
