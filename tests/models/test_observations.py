"""Observations are read and counted as they are, and no error shows one."""

import itertools

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy.sparse import csr_matrix

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.models.counted import AnswersReading, JointReading, NumbersReading, count_outcomes
from pymc_dirdp.models.observations import find_observations, read_counts, total_records
from pymc_dirdp.models.tables import tables
from tests.planned import counts_of

from .small import beta, built, coded, counted, simplex, tossed


def data(values, name="x"):
    return pm.Data(name, np.asarray(values))


def tried(observed, n, *rows, name="y"):
    pm.Binomial(name, n=n, p=beta(*rows, prior=(1, 2)), observed=observed)


def facts(build):
    """What is read of the only observed variable of a model."""
    model = built(build)
    (found,) = find_observations(tables(model), model)
    return found


def test_new_data_are_read_when_they_are_set_and_are_not_changed():
    with pm.Model() as model:
        stored = data([0, 1])
        coded(simplex(3), stored)
        tried(1, 5, name="z")
    model.set_data("x", [2, 2, 2])
    counts = counts_of(model)
    np.testing.assert_array_equal(counts["b"], [1, 4])
    counts["p"] += 5
    np.testing.assert_array_equal(counts_of(model)["p"], [0, 0, 3])
    np.testing.assert_array_equal(stored.get_value(), [2, 2, 2])
    with pytest.raises(ArgumentError, match="no variable 'y'"):
        find_observations(tables(model), pm.Model())


def test_large_counts_are_exact_and_their_total_is_counted_up_to_the_last_number_that_doubles_hold():
    counts = np.array([10**9, 10**9 + 1, 2])
    with pm.Model() as model:
        counted(simplex(3), counts, counts.sum())
        tried([2.0**53 - 1], 2**53, name="z")
    found = counts_of(model)
    np.testing.assert_array_equal(found["p"], counts)
    np.testing.assert_array_equal(found["b"], [2**53 - 1, 1])
    # The total is found without the counts.
    assert total_records([facts(lambda: counted(simplex(3), np.full((2, 3), -1), [4, 5]))]) == 9
    assert total_records([facts(lambda: tried([0, 0], [2**53 - 1, 1]))]) == 2**53
    with pytest.raises(DataError):
        total_records([facts(lambda: tried([0, 0], [2**53, 1]))])


# What is wrong with data. The numbers are distinctive, so that a message that holds one is found out.

DISTINCTIVE = (7919, 6007, 4211)


def changed(values):
    """A `pm.Data` with values that PyMC would not take at first."""
    stored = pm.Data("x", np.zeros(np.shape(values)))
    stored.set_value(np.asarray(values, dtype=float))
    return stored


WRONG = {
    "negative counts": (lambda: counted(simplex(3), [7919, -6007, 4211], 6123), ">= 0"),
    "counts that do not add up": (lambda: counted(simplex(3), [7919, 6007, 4211], 18136), "do not add up to `n`"),
    "rows that add up in all only": (
        lambda: counted(simplex(3), [[7919, 0, 0], [0, 6007, 0]], [7918, 6008]),
        "do not add up",
    ),
    "fractions in a list": (lambda: counted(simplex(3), [7919.5, 6007.5, 4211], 18138), "do not add up"),
    "fractions in data": (lambda: counted(simplex(3), data([7919.5, 6007.5, 4211]), 18138), "integers"),
    "not a number": (lambda: counted(simplex(3), changed([7919, np.nan, 4211]), 12130), "finite"),
    "more than one n": (lambda: tried([7919, 4211], [7920, 4210]), "above `n`"),
    "negative successes": (lambda: tried(data([-7919]), 6007), ">= 0"),
    "beyond all integers": (lambda: tried(changed([1e300]), 7919), "above 2**53"),
    "a sum of 2**53 + 1": (lambda: counted(simplex(3), changed([2.0**53, 1.0, 0.0]), 2**53), "2**53"),
    "a code too high": (lambda: coded(simplex(3), [0, 1, 7919]), "codes from 0 to 2"),
    "the first code too high": (lambda: coded(simplex(3), [0, 1, 3]), "codes from 0 to 2"),
    "a code too high in a row": (lambda: coded(simplex(2, 3), [[0, 3], [1, 1]]), "codes from 0 to 2"),
    "two successes at once": (lambda: tossed(beta(), [0, 7919]), "0 or 1"),
    "a sparse array": (lambda: counted(simplex(3), csr_matrix([[7919, 6007, 4211]]), 18137), "dense array"),
}
# Here the total is wrong, too: its sources are the number of trials and the shape.
WRONG_TOTALS = {
    "negative trials": (lambda: tried([0], data([-7919], "n")), "trials of 'y' are not all >= 0"),
    "half a trial": (lambda: tried([6007], data([7919.5], "n")), "trials of 'y' are not all integers"),
    "half a trial of categories": (lambda: counted(simplex(3), [7919, 0, 0], 7919.5), "trials of 'y' are not all int"),
    "trials of another shape": (lambda: tried(data([7919, 7919]), data([7919] * 3, "n")), "shape"),
    "trials that cannot be computed": (
        lambda: tried(data([7919, 6007]), data([7919, 6007], "n") + data([4211] * 3, "m")),
        "cannot be computed",
    ),
    "trials in a short float": (lambda: tried([5], pytensor.shared(np.array([2**24], "f"), name="n")), "of trials"),
    "too many": (lambda: tried([2.0**53, 7919], 2**53), "2**53"),
    "too many in all": (lambda: counted(simplex(3), changed(np.full((4, 3), 2.0**52)), 3 * 2**52), "2**53"),
    "so many that 64 bits wrap": (lambda: tried(changed(np.ones(4097)), 2**53), "2**53"),
    "too many categories": (lambda: counted(simplex(3), data([7919, 6007, 4211, 0]), 18137), "the 3 categories of"),
    "too few rows": (lambda: counted(simplex(2, 3), data([[7919, 0, 0]]), 7919), "the 2 rows of the prior"),
    "too many rows": (lambda: tossed(beta(2), data(np.zeros(7919))), "the 2 rows of the prior"),
    "too few columns": (lambda: coded(simplex(2, 3), data(np.zeros((6007, 1)))), "the 2 rows of the prior"),
    "a repeated record": (lambda: tossed(beta(), data([1]), shape=(7919,)), "shape that the variable declares"),
}


@pytest.mark.parametrize("what", WRONG | WRONG_TOTALS)
def test_broken_data_are_refused_without_a_word_about_them(what):
    build, problem = (WRONG | WRONG_TOTALS)[what]
    model = built(build)
    (table,) = tables(model)
    for read in (read_counts, total_records) if what in WRONG_TOTALS else (read_counts,):
        with pytest.raises(DataError) as caught:
            read(find_observations([table], model))
        assert problem in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None
        said = str(caught.value) + repr(caught.value.args)
        assert "'y'" in said
        assert not any(str(number) in said for number in DISTINCTIVE)


@pytest.mark.parametrize("given", ["list of floats", "list of integers", "data"])
def test_counts_that_float32_cannot_tell_apart_are_refused(given):
    """Finding 9: under `floatX="float32"` 2**26 + 4 and 2**26 + 5 were read as two numbers that differ by 8."""

    def model(count):
        with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
            values = {"list of floats": [float(count)], "list of integers": [count]}.get(given)
            tried(data([float(count)]) if values is None else values, 2**27, 1)
        return model

    # Also where the flag is back to what it was.
    for count in (2**24, 2**26 + 5):
        with pytest.raises(DataError, match="reach 2\\*\\*24") as caught:
            counts_of(model(count))
        assert str(count) not in str(caught.value)
    np.testing.assert_array_equal(counts_of(model(2**24 - 1))["b"], [[2**24 - 1, 2**27 - 2**24 + 1]])


def facts_of(trials):
    return facts(lambda: tried(np.zeros(np.shape(trials), dtype=int), np.array(trials)))


@pytest.mark.parametrize("trials", [[[5, 5], [9, 9]], [[5, 6], [9, 9]], [[5, 9], [5, 9]], [[4, 4], [4, 4]]])
def test_whether_trials_differ_along_axes(trials):
    """Oracle: the numbers of one line along the axes, for every place on the others."""
    found, array = facts_of(trials), np.array(trials)
    lines = {(0,): array.T, (1,): array, (0, 1): array.reshape(1, -1), (): array.reshape(-1, 1)}
    for axes, of_axes in lines.items():
        assert found.trials_differ_along(axes) == any(len(set(line.tolist())) > 1 for line in of_axes)
    assert found.numbered == (0, 1)


def test_records_of_an_entry_are_its_trials():
    """Raw records have one trial each. Only a single number for all is looked at to see whether there are several."""
    found = facts(lambda: coded(simplex(3), np.zeros((4, 3), dtype=int)))
    assert not found.trials_differ_along((0, 1))
    assert found.numbered == ()
    assert not found.has_several_trials
    assert found.common_n_trials == 1
    sizes = found.records_of((0,))
    assert sizes.dtype == np.int64
    np.testing.assert_array_equal(sizes, [3, 3, 3, 3])
    assert found.max_records_in_block((0,)) == 3
    assert all(facts_of(n).has_several_trials for n in ([[5, 6], [9, 9]], [[1, 1]], [[1]], np.ones((0, 2), int)))
    assert [facts(lambda n=n: tried(np.zeros(1, int), n)).has_several_trials for n in (1, 2)] == [False, True]
    found = facts_of([[5, 6], [9, 9]])
    assert found.common_n_trials is None
    np.testing.assert_array_equal(found.records_of((0,)), [11, 18])
    assert found.max_records_in_block((0,)) == 18


GC, PC, NO_DIM = ("g", "c"), ("person", "c"), (None, None)


@pytest.mark.parametrize(
    ("n_rows", "dims", "record_axes"),
    [(2, (GC, GC), (0,)), (2, NO_DIM, (0,)), (1, (GC, GC), (0,)), (1, (GC, PC), ()), (1, NO_DIM, ())],
)
def test_rows_that_are_followed_by_position(n_rows, dims, record_axes):
    """A single row may hold a private number of observations, unless the model says that both are along one dim."""
    coords = {"g": range(n_rows), "person": range(n_rows), "c": range(3)}
    with pm.Model(coords=coords) as model:
        p = pm.Dirichlet("p", np.ones((n_rows, 3)), dims=dims[0])
        pm.Multinomial("y", n=4, p=p, observed=np.full((n_rows, 3), [1, 1, 2]), dims=dims[1])
        q = pm.Beta("q", np.ones(n_rows), 1, dims=dims[0] and dims[0][:1])
        pm.Binomial("z", n=4, p=q, observed=np.full(n_rows, 3), dims=dims[1] and dims[1][:1])
    for table in tables(model):
        (found,) = find_observations([table], model)
        assert found.record_axes == record_axes
        assert found.summed == tuple({0} - set(record_axes))


def test_no_face_of_what_was_read_shows_it():
    counts = np.array([2003, 2000, 2007])
    observed = facts(lambda: counted(simplex(3), counts, 6010))
    seen = observed.reading.records()
    np.testing.assert_array_equal(seen.records, counts)
    for face in (repr(seen), str(seen), f"{seen}", repr(observed), str(observed), repr(observed.reading)):
        assert "2003" not in face
        assert "array" not in face


SUPPORT = np.array([-2, 0, 5])


def reading(observed, *, questions=None, rows=None, levels=()):
    """The reading of answers, with a row for each person."""
    rows = np.zeros(len(observed), dtype=np.int64) if rows is None else np.array(rows)
    n_rows = (int(rows.max(initial=0)) + 1) * int(np.prod([length for *_, length in levels]))
    n_labels = len(SUPPORT) if questions is None else int(np.prod(list(map(len, questions))))
    sources = tuple((label, lambda codes=codes: codes, length) for label, codes, length in levels)
    return AnswersReading("y", lambda: np.array(observed), (n_rows, n_labels), SUPPORT, rows, 0, questions, sources)


def numbers(observed, trials=None, has_categories=False, log_p=()):
    trials = None if trials is None else np.array(trials)
    return NumbersReading("y", lambda: np.array(observed), trials, has_categories, log_p, "int64")


def test_answers_are_counted_in_the_row_and_the_outcome_of_each_person():
    rng = np.random.default_rng(1)
    observed, rows, level = rng.choice(SUPPORT, 50), rng.integers(2, size=50), rng.integers(3, size=50)
    expected = np.zeros((6, 3), dtype=int)
    for value, row, code in zip(observed, rows, level, strict=True):
        expected[row * 3 + code, list(SUPPORT).index(value)] += 1
    counts = reading(observed, rows=rows, levels=[("group", level, 3)]).counts()
    assert np.array_equal(counts, expected)
    # Tables may have cells that nothing fills.
    (table,) = count_outcomes([(reading(observed), (4,))])
    assert table.tolist() == [*reading(observed).counts().ravel(), 0]


def test_answers_to_several_questions_are_combinations_in_their_order():
    questions = (np.array([0, 2]), np.array([0, 1, 2]))
    combinations = list(itertools.product(*questions))
    observed = SUPPORT[np.array(combinations)]
    assert np.array_equal(reading(observed, questions=questions).cells()[1], np.arange(6))
    assert reading(observed[:0], questions=questions).counts().tolist() == [[0] * 6]


def test_variables_of_the_same_people_are_combinations():
    first, second = [-2, 0, 5, 5], [5, 5, 0, -2]
    joint = JointReading("a_b", (reading(first), reading(second, rows=[0, 1, 1, 0])), (2, 9))
    rows, codes = joint.cells()
    assert rows.tolist() == [0, 1, 1, 0]
    assert codes.tolist() == [2, 5, 7, 6]
    assert joint.counts().sum() == 4
    with pytest.raises(DataError, match="not answers of the same people"):
        JointReading("a_b", (reading(first), reading(second[:3])), (1, 9)).cells()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (reading([0, 7919]), "Some observation"),
        (reading([0, np.nan]), "Some observation"),
        (reading(["0", "7919"]), "Some observation"),
        (reading([0, 5], levels=[("group", np.array([0, 7919]), 3)]), "Some code of 'group'"),
        (reading([0, 5], levels=[("group", np.array([0, -1]), 3)]), "Some code of 'group'"),
        (reading([[0, -2], [5, 5]], questions=(np.array([1]), np.array([0, 1]))), "Some answer"),
        (numbers([7919, 3], [7918, 5]), "counts of its trials"),
        (numbers([[3, 3]], [5], True), "counts of its trials"),
        (numbers([7919.5]), "not all numbers of people"),
        (numbers([-7919]), "not all numbers of people"),
        (numbers([7919], log_p=(lambda x: -np.inf,)), "probability of 0"),
        (NumbersReading("y", None, None, False, (), "int64"), "cannot be computed"),
        (NumbersReading("y", lambda: 1 / 0, None, False, (), "int64"), "cannot be computed"),
    ],
)
def test_what_is_no_record_is_refused_and_not_shown(wrong, problem):
    with pytest.raises(DataError, match=problem) as caught:
        wrong.counts()
    assert "7919" not in str(caught.value)
    assert caught.value.__context__ is None


def test_numbers_of_people_are_counts():
    possible = (lambda x: np.where(x >= 0, -1.0, -np.inf),)
    assert numbers([[3, 0]], log_p=possible).counts().tolist() == [3, 0]
    for one in (numbers([3, 0], [5, 2]), numbers([[3, 2], [0, 2]], [5, 2], True)):
        assert one.counts().tolist() == [[3, 2], [0, 2]]
