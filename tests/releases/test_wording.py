"""Seeds, second releases without a ledger, and weak guarantees warn at the user's own line."""

import contextlib
import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def test_a_seed_warns_where_it_was_given():
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=[1.0, 2.0])
        pm.Multinomial("answers", n=14, p=p, observed=[4, 10])
    with pytest.warns(dirdp.errors.SeededReleaseWarning, match="not private") as caught:
        dirdp.sample(TARGET, model, random_seed=1)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.RepeatedReleaseWarning")
def test_a_second_release_without_a_ledger_warns_once():
    with pm.Model() as model:
        p = pm.Dirichlet("released_again", a=[1.0, 2.0, 3.5])
        pm.Multinomial("answers", n=20, p=p, observed=[4, 6, 10])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            dirdp.sample(TARGET, model)
        ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5))
        dirdp.sample(TARGET, model, ledger=ledger)
    assert [warning.category for warning in caught] == [dirdp.errors.RepeatedReleaseWarning]
    assert "ledger=" in str(caught[0].message)
    assert caught[0].filename == __file__


def counted(labels, counts):
    with pm.Model(coords=labels and {"answer": labels}) as model:
        p = pm.Dirichlet("p", a=np.ones(len(counts)), dims=labels and "answer")
        pm.Multinomial("answers", n=int(np.sum(counts)), p=p, observed=counts)
    return model


def test_labels_in_the_order_of_their_counts_warn_the_curator():
    answers = pd.Series(["no"] * 11 + ["yes"] * 40 + ["never"] * 23 + ["perhaps"] * 17).value_counts()
    with pytest.warns(dirdp.errors.CategoriesFromDataWarning, match="'p' descend along the dim 'answer'") as caught:
        dirdp.sample(TARGET, counted(list(answers.index), answers.to_numpy()))
    assert [warning.filename for warning in caught] == [__file__]
    assert not set("0123456789") & set(str(caught[0].message)), "no number of the data"
    with pytest.warns(dirdp.errors.CategoriesFromDataWarning):
        dirdp.sample(TARGET, counted([3, 1, 0, 2], [9, 8, 4, 1]))


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        (["yes", "no", "never", "perhaps"], [9, 8, 8, 1]),
        (["yes", "no", "never", "perhaps"], [9, 1, 8, 3]),
        (["yes", "no", "never"], [9, 8, 1]),
        (None, [9, 8, 4, 1]),
        ([0, 1, 2, 3], [9, 8, 4, 1]),
    ],
)
def test_others_are_released_without_a_word(labels, counts):
    dirdp.sample(TARGET, counted(labels, counts))


def test_the_sums_of_all_rows_descend_along_labels_of_either_axis():
    coords = {"place": list("dacb"), "answer": ["no", "yes"]}
    for counts in ([[5, 4], [2, 6], [3, 4], [0, 1]], [[5, 4], [2, 8], [3, 4], [0, 1]]):
        with pm.Model(coords=coords) as model:
            p = pm.Dirichlet("p", a=np.ones((4, 2)), dims=("place", "answer"))
            pm.Multinomial("answers", n=np.sum(counts, axis=1), p=p, observed=counts)
        descends = np.all(np.diff(np.sum(counts, axis=1)) < 0)
        with pytest.warns(dirdp.errors.CategoriesFromDataWarning) if descends else contextlib.nullcontext():
            dirdp.sample(TARGET, model)


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.WeakGuaranteeWarning")
@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        (dirdp.ApproxDP(epsilon=1.0, delta=0.1), "delta=0.1 is not below one over the number of records"),
        (dirdp.ApproxDP(epsilon=1.0, delta=0.01), "such as 0.001"),
        (dirdp.ApproxDP(epsilon=50.0, delta=1e-6), "epsilon=50 is above 10"),
        (dirdp.ApproxDP(epsilon=1.0, delta=0.0099), None),
        (dirdp.ApproxDP(epsilon=10.0, delta=1e-6), None),
        (dirdp.TruncatedCDP(rho=20.0, omega=5), None),
    ],
)
def test_a_weak_guarantee_warns_where_the_user_calls(guarantee, said):
    model = counted(None, [40, 60])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
        dirdp.sample(guarantee, model)
    assert len(caught) == (said is not None)
    for warning in caught:
        assert warning.category is dirdp.errors.WeakGuaranteeWarning
        assert said in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.WeakGuaranteeWarning")
def test_the_warning_of_delta_tells_no_private_number():
    """Under add-remove the delta that is proposed follows from the number to plan for, which is public."""
    with pytest.warns(dirdp.errors.WeakGuaranteeWarning, match="such as 1e-05") as caught:
        dirdp.plan(
            dirdp.ApproxDP(epsilon=1, delta=0.1), counted(None, [40, 60]), adjacency="add-remove", n_records=5000
        )
    assert "100" not in str(caught[0].message)


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.FewRecordsWarning")
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
    """By public numbers alone: where the number of records is private, by the size to plan for."""
    private, warned = adjacency == "add-remove", cells > 18
    model = counted(None, np.bincount(np.arange(90 + 7 * private) % cells, minlength=cells))
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5, delta=1e-5), adjacency=adjacency)
    options = {"mechanism": mechanism, "adjacency": adjacency} | ({"n_records": 90} if private else {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dirdp.plan(TARGET, model, **options)
    few = [warning for warning in caught if warning.category is dirdp.errors.FewRecordsWarning]
    assert len(few) == warned
    for warning in few:
        assert warning.filename == __file__
        assert f"{cells} cells for {'the ' * private}90 records" in str(warning.message)
        assert "at most 18 cells" in str(warning.message)
        assert "97" not in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dirdp.errors.FewRecordsWarning)
        with pytest.raises(dirdp.errors.FewRecordsWarning) if warned else contextlib.nullcontext():
            planned_sample(TARGET, model, ledger=ledger, **options)
    assert len(ledger.entries()) == (not warned)
