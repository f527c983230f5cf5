"""Naive Bayes and Bayesian networks: the models."""

import itertools
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.counting import tables as families
from pymc_dirdp.models.observations import find_observations, read_counts, total_records
from pymc_dirdp.planning.expected_kl import a_priori_kl
from tests.planned import planned_sample

RNG = np.random.default_rng(5)
N = 400
CLASS = RNG.choice(["cat", "dog", "hen"], N, p=[0.5, 0.3, 0.2])
FRAME = pd.DataFrame(
    {
        "class": CLASS,
        "legs": np.where(CLASS == "hen", 2, 4),
        "size": np.where(RNG.random(N) < np.where(CLASS == "dog", 0.8, 0.2), "large", "small"),
    }
)
CATEGORIES = {"class": ["cat", "dog", "hen"], "legs": [2, 4], "size": ["small", "large", "huge"]}
NETWORK = {"size": ["class", "legs"], "class": [], "legs": ["class"]}


def naive(**options):
    return dirdp.naive_bayes(FRAME, FRAME["class"], categories=CATEGORIES, **options)


def counts_of(model):
    return {table.name: read_counts(find_observations([table], model)) for table in dirdp.tables(model)}


def test_naive_bayes_counts_features_given_the_class():
    """Oracle: pandas.crosstab; the direction is Pr[feature | class] (ERRATA P1.2)."""
    counts = counts_of(naive())
    by_hand = pd.crosstab(FRAME["class"], FRAME["size"]).reindex(columns=CATEGORIES["size"], fill_value=0)
    np.testing.assert_array_equal(counts["p_size"], by_hand)
    np.testing.assert_array_equal(counts["p_class"], FRAME["class"].value_counts()[CATEGORIES["class"]])
    assert counts["p_legs"].shape == (3, 2)
    # Nobody is huge, and no cat has two legs: the cells are there all the same.
    assert counts["p_size"][:, 2].sum() == 0


def test_networks_hold_every_configuration_of_the_parents():
    model = dirdp.bayesian_network(FRAME, NETWORK, categories=CATEGORIES)
    counts = counts_of(model)
    assert counts["p_size"].shape == (3, 2, 3)
    for (i, c), (j, n), (k, s) in itertools.product(*(enumerate(CATEGORIES[v]) for v in ("class", "legs", "size"))):
        here = (FRAME["class"] == c) & (FRAME["legs"] == n) & (FRAME["size"] == s)
        assert counts["p_size"][i, j, k] == here.sum()
    table = next(table for table in dirdp.tables(model) if table.name == "p_size")
    assert table.dims == ("class", "legs", "size")


@pytest.mark.parametrize(
    "structure",
    [
        {name: tuple(parents) for name, parents in NETWORK.items()},
        [("class", "size"), ("legs", "size"), ("class", "legs")],
        SimpleNamespace(
            nodes=["class", "legs", "size"], edges=[("class", "size"), ("legs", "size"), ("class", "legs")]
        ),
    ],
)
def test_structures_can_be_written_in_several_ways(structure):
    expected = counts_of(dirdp.bayesian_network(FRAME, NETWORK, categories=CATEGORIES))
    found = counts_of(dirdp.bayesian_network(FRAME, structure, categories=CATEGORIES))
    assert {name: counts.tolist() for name, counts in found.items()} == {
        name: counts.tolist() for name, counts in expected.items()
    }


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ({"class": ["legs"], "legs": ["class"]}, "cycle: (class -> legs -> class|legs -> class -> legs)"),
        ({"class": ["class"]}, "cycle: class -> class"),
        ({"class": ["tail"]}, "not a variable of the structure"),
        ({"class": [], "legs": ["class", "class"]}, "the same parent twice"),
        ({"class": [], "tail": []}, r"categories\['tail'\]"),
        ({"class": "legs", "legs": []}, "list of names"),
        ({}, "at least one variable"),
        (["class"], "parent, child"),
        (["ab"], "parent, child"),
        (None, "got None"),
        ({"class": None}, "list of names"),
        ({"class": [], "p_class": []}, "Rename"),
    ],
)
def test_wrong_structures(structure, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.bayesian_network(FRAME, structure, categories=CATEGORIES)


def test_priors_by_variable():
    model = dirdp.bayesian_network(FRAME, NETWORK, categories=CATEGORIES, prior={"size": [1.0, 2.0, 3.0], "class": 0.5})
    priors = {table.name: table.prior for table in dirdp.tables(model)}
    np.testing.assert_array_equal(priors["p_size"], np.broadcast_to([1.0, 2.0, 3.0], (3, 2, 3)))
    np.testing.assert_array_equal(priors["p_class"], [0.5] * 3)
    np.testing.assert_array_equal(priors["p_legs"], np.ones((3, 2)))
    with pytest.raises(dirdp.errors.ArgumentError, match=r"prior\['size'\] to broadcast"):
        dirdp.bayesian_network(FRAME, NETWORK, categories=CATEGORIES, prior={"size": [1.0, 2.0]})
    with pytest.raises(dirdp.errors.ArgumentError, match="> 0"):
        naive(prior=0.0)


def test_a_value_that_was_not_declared_stops_the_model():
    with pytest.raises(dirdp.errors.DataError, match="'size'"):
        dirdp.naive_bayes(FRAME, CLASS, categories=CATEGORIES | {"size": ["small", "huge"]})
    with pytest.raises(dirdp.errors.ArgumentError, match="target="):
        dirdp.naive_bayes(FRAME, CLASS, categories={"legs": [2, 4]})


def test_large_counts_are_preserved(monkeypatch):
    """PyMC stores integer arrays in 32 bits, which 3e9 records of one value would pass."""
    many = 3_000_000_001
    monkeypatch.setattr(families, "tabulate", lambda columns, shape, times: np.full(shape, many, dtype=np.int64))
    model = naive()
    for counts in counts_of(model).values():
        np.testing.assert_array_equal(counts, np.full(counts.shape, float(many)))
    assert {
        total_records(find_observations([table], model)) for table in dirdp.tables(model) if table.name == "p_class"
    } == {3 * many}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chain", "PyMC reserves"),
        ("draw", "PyMC reserves"),
        ("p_class", "'p_class' is a variable and also the table of 'class'"),
        ("n_class", "'n_class' is a variable and also the table of 'class'"),
        ("a/b", "without '/'"),
        ("", "without '/'"),
        ("..", "without '/'"),
        ("a\\b", "without '/'"),
        ("a\nb", "control characters"),
        ("\x1b[2Ja", "control characters"),
        ("a\0", "control characters"),
        ("\ud800", "control characters"),
        (1, "without '/'"),
    ],
)
def test_names_that_a_model_cannot_hold(name, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.naive_bayes({name: [0, 1]}, ["cat", "dog"], categories={"class": ["cat", "dog"], name: [0, 1]})


@pytest.mark.parametrize(
    "labels", [[1, "1"], ["a", 1], ["True", True], [(0, 1), (1, 2)], [(0,), (0, 1)], [2**64, 1], [1j, 2]]
)
def test_labels_that_coords_cannot_keep(labels):
    """As coords 1 and "1" would be one text, and no record would be found in the release."""
    with pytest.raises(dirdp.errors.ArgumentError, match=r"categories\['x'\] to be .*texts or"):
        dirdp.bayesian_network({"x": labels}, {"x": []}, categories={"x": labels})


@pytest.mark.parametrize("label", ["a\nb", "a\x1b[2J", "\ud800", "a\tb", "a\x9b"])
def test_labels_that_a_terminal_obeys(label):
    with pytest.raises(dirdp.errors.UnsupportedModelError, match=r"labels of the dim 'x' .* hold control characters"):
        dirdp.bayesian_network({"x": [label]}, {"x": []}, categories={"x": [label, "b"]})


@pytest.mark.parametrize("labels", [[1, 2.5], [False, True], [0.5, 1.5], ["1", "2"], [2, 1]])
def test_labels_that_coords_keep(labels):
    model = dirdp.bayesian_network({"x": labels}, {"x": []}, categories={"x": labels})
    assert list(model.coords["x"]) == labels


def test_an_alpha_of_no_variable_is_a_slip():
    with pytest.raises(dirdp.errors.ArgumentError, match="prior has 'sise'"):
        naive(prior={"sise": 2.0})
    with pytest.raises(dirdp.errors.ArgumentError, match=r"prior\['class'\] to be numbers, got a str"):
        naive(prior="flat")


def test_an_undirected_graph_has_no_parents():
    graph = SimpleNamespace(nodes=["class", "legs"], edges=[("class", "legs")], is_directed=lambda: False)
    with pytest.raises(dirdp.errors.ArgumentError, match="directed graph, got a SimpleNamespace"):
        dirdp.bayesian_network(FRAME, graph, categories=CATEGORIES)


class View(Mapping):
    """A view of networkx: a mapping from nodes or edges to dicts of attributes or neighbours."""

    def __init__(self, of):
        self.of = of

    def __getitem__(self, key):
        return self.of[key]

    def __iter__(self):
        return iter(self.of)

    def __len__(self):
        return len(self.of)


@pytest.mark.parametrize(
    "view",
    [
        View({("class", "legs"): {}}),
        View({("class", "legs", 0): {}}),
        View({"class": {}, "legs": {}}),
        View({"class": {"legs": {}}, "legs": {}}),
        View({"class": View({"legs": {}}), "legs": View({})}),
    ],
    ids=["edges", "edges of a multigraph", "nodes", "adj", "adj of views"],
)
def test_views_of_a_graph_are_refused(view):
    """Found by attack: `G.nodes` had no arrows, and `G.adj` all of them the wrong way round, without a word."""
    with pytest.raises(dirdp.errors.ArgumentError, match=r"got a View, a view of a graph\. Pass the graph itself"):
        dirdp.bayesian_network(FRAME, view, categories=CATEGORIES)


def test_a_multigraph_says_what_to_pass():
    edges = View({("class", "legs", 0): {}})
    graph = SimpleNamespace(nodes=["class", "legs"], edges=edges, is_directed=lambda: True, is_multigraph=lambda: True)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"parallel edges\. Pass networkx.DiGraph\(graph\)"):
        dirdp.bayesian_network(FRAME, graph, categories=CATEGORIES)


def test_tables_that_are_too_large_are_refused_before_a_record_is_read():
    categories = {name: range(1000) for name in "abc"}
    with pytest.raises(dirdp.errors.ArgumentError, match="a, b, c has 1000000000 cells"):
        dirdp.bayesian_network({}, {"a": [], "b": [], "c": ["a", "b"]}, categories=categories)


def test_columns_of_another_length():
    with pytest.raises(dirdp.errors.DataError, match="different lengths"):
        dirdp.naive_bayes(FRAME, CLASS[:-1], categories=CATEGORIES)


def test_the_class_may_be_a_column_of_the_features():
    frame = dict(FRAME) | {"class": CLASS}
    found = counts_of(dirdp.naive_bayes(frame, "class", categories=CATEGORIES))
    for name, counts in counts_of(naive()).items():
        np.testing.assert_array_equal(found[name], counts)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"categories\['spam'\] to list the classes"):
        dirdp.naive_bayes(frame, "spam", categories=CATEGORIES)
    with pytest.raises(dirdp.errors.ArgumentError, match="no column 'class'"):
        dirdp.naive_bayes({"size": [], "legs": []}, "class", categories=CATEGORIES)
    with pytest.raises(dirdp.errors.ArgumentError, match="target='size' name different columns"):
        dirdp.naive_bayes(frame, "class", categories=CATEGORIES, target="size")


def test_the_name_of_the_class():
    named = CATEGORIES | {"kind": CATEGORIES["class"]}
    del named["class"]
    by_name = dirdp.naive_bayes(FRAME, FRAME["class"].rename("kind"), categories=named)
    by_target = dirdp.naive_bayes(FRAME, CLASS.tolist(), categories=named, target="kind")
    for model in (by_name, by_target):
        np.testing.assert_array_equal(counts_of(model)["p_kind"], counts_of(naive())["p_class"])
        assert model.named_vars_to_dims["p_size"] == ("kind", "size")


def test_many_tables_are_built():
    rng = np.random.default_rng(4)
    records = {f"x{i}": rng.integers(10, size=1000) for i in range(64)}
    categories = dict.fromkeys([*records, "class"], range(10))
    model = dirdp.naive_bayes(records, rng.integers(10, size=1000), categories=categories)
    assert len(model.free_RVs) == 65


def test_a_label_that_nobody_has():
    """The counts of all other labels are then the numbers of trials of each child of the same parent."""
    labels = ["x", "y", "none"]
    records = {"top": ["x", "y", "x"], "middle": ["x", "y", "y"], "one": ["x", "y", "x"], "two": ["y", "y", "x"]}
    structure = {"top": [], "middle": ["top"], "one": ["middle"], "two": ["middle"]}
    model = dirdp.bayesian_network(records, structure, categories=dict.fromkeys(records, labels))
    plan = dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    assert [part.n_records for part in plan.parts] == [3, 3, 3, 3]


def test_a_parent_with_one_label_divides_nothing():
    records = {"a": list("xyxy"), "only": list("kkkk"), "c": list("ppqq")}
    categories = {"a": ["x", "y"], "only": ["k"], "c": ["p", "q"]}
    structure = {"a": [], "only": ["a"], "c": ["only", "a"]}
    model = dirdp.bayesian_network(records, structure, categories=categories)
    assert model.named_vars_to_dims["p_c"] == ("a", "c")
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    asked = {"a": ["x", "y"], "only": ["k", "k"]}
    assert dirdp.predict_log_proba(release, asked, target="c").shape == (2, 2)
    assert np.isfinite(dirdp.log_likelihood(release, records)).all()
    # Where no parent divides anything, one of them stays.
    alone = {"only": [], "other": [], "c": ["only", "other"]}
    kinds = {"only": ["k"], "other": ["k"], "c": ["p", "q"]}
    model = dirdp.bayesian_network(records | {"other": list("kkkk")}, alone, categories=kinds)
    assert model.named_vars_to_dims["p_c"] == ("only", "c")
    assert len(dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model).parts) == 3


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric", "marginals"])
def test_an_only_parent_with_one_label_changes_no_privacy(mechanism):
    """Oracle: the same network without the parent."""
    records = {"only": list("kkkkkk"), "c": list("ppqqqp")}
    categories = {"only": ["k"], "c": ["p", "q"]}
    with_parent, without = (
        dirdp.plan(
            dirdp.ApproxDP(epsilon=1.0, delta=1e-6),
            dirdp.bayesian_network(records, {"only": [], "c": parents}, categories=categories),
            mechanism=mechanism,
        )
        for parents in (["only"], [])
    )
    (one,), (other,) = (
        [part.mechanism for part in plan.parts if part.table.name == "p_c"] for plan in (with_parent, without)
    )
    assert (one.shape, other.shape) == ((1, 2), (2,))
    epsilons = [mechanism.epsilon(1e-6) for mechanism in (one, other)]
    assert 0 < epsilons[0] == pytest.approx(epsilons[1], rel=1e-6)


def test_rows_that_stand_for_many_records():
    """The same model as that of the records themselves."""
    cells = {"a": ["x", "y", "x"], "b": ["u", "u", "v"], "n": [3, 1, 2]}
    records = {name: np.repeat(cells[name], cells["n"]).tolist() for name in ("a", "b")}
    options = {"categories": {"a": ["x", "y"], "b": ["u", "v"]}, "structure": {"a": [], "b": ["a"]}}
    models = [dirdp.bayesian_network(cells, counts="n", **options), dirdp.bayesian_network(records, **options)]
    first, second = ([model.rvs_to_values[rv].eval() for rv in model.observed_RVs] for model in models)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    assert first[1].tolist() == [[3, 2], [1, 0]]


@pytest.mark.parametrize("last", [[], [-1], [0.5], [True], ["3"], [None], [float("nan")], [2**53]])
def test_counts_of_rows_that_are_none(last):
    options = {"categories": {"a": ["x", "y"]}, "structure": {"a": []}, "counts": "n"}
    with pytest.raises(dirdp.errors.DataError, match=r"nonnegative integers|different lengths") as raised:
        dirdp.bayesian_network({"a": ["x", "y", "x"], "n": [1, 2, *last]}, **options)
    assert "0.5" not in str(raised.value)


def test_a_column_of_counts_that_is_not_there():
    with pytest.raises(dirdp.errors.ArgumentError, match="no column 'n'"):
        dirdp.bayesian_network({"a": ["x"]}, {"a": []}, categories={"a": ["x", "y"]}, counts="n")


@pytest.mark.slow
def test_a_built_model_is_planned_for_the_estimate_unless_another_objective_is_given():
    """A model with the same tables, written by hand, is planned for the posterior."""
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    records = {"fur": ["yes", "no"] * 50, "class": ["cat", "hen"] * 50}
    categories = {"fur": ["yes", "no"], "class": ["cat", "hen"]}
    naive = dirdp.naive_bayes(records, records["class"], categories=categories)
    network = dirdp.bayesian_network(records, {"class": [], "fur": ["class"]}, categories=categories)
    with pm.Model(coords=categories) as by_hand:
        p = pm.Dirichlet("p_class", np.ones(2), dims="class")
        pm.Multinomial("n_class", n=100, p=p, observed=[50, 50], dims="class")
        q = pm.Dirichlet("p_fur", np.ones((2, 2)), dims=("class", "fur"))
        pm.Multinomial("n_fur", n=[50, 50], p=q, observed=[[50, 0], [0, 50]], dims=("class", "fur"))
    for model in (naive, network):
        assert dirdp.plan(target, model).objective == "estimate"
        assert dirdp.plan(target, model, objective="posterior").objective == "posterior"
        release = dirdp.sample(target, model)
        assert {node.attrs["objective"] for node in release["mechanism"].children.values()} == {"estimate"}
        assert "optimal, for the estimate" in str(dirdp.report(release, full=True))
    own = dirdp.plan(target, by_hand, contribution=1)
    assert own.objective == "posterior"
    # Each objective has the smaller error of its own kind.
    errors = {
        plan.objective: float(sum(_expected(plan)))
        for plan in (dirdp.plan(target, naive), dirdp.plan(target, naive, objective="posterior"))
    }
    assert errors["estimate"] < errors["posterior"]


def _expected(plan):
    return (a_priori_kl(part.mechanism, part.table.prior, part.n_records).estimate for part in plan.parts)


def test_a_tree_of_features_is_beside_the_arcs_from_the_class():
    """The model is that of the network with these parents, and the cost of a chosen tree is asked for."""
    rng = np.random.default_rng(4)
    a = rng.integers(2, size=4000)
    frame = {"a": a, "b": np.where(rng.random(4000) < 0.9, a, 1 - a), "c": rng.integers(3, size=4000)}
    categories = {"a": [0, 1], "b": [0, 1], "c": [0, 1, 2]}
    y = np.where(rng.random(4000) < 0.7, a, 1 - a)
    guarantee, kinds = dirdp.ApproxDP(epsilon=4.0, delta=1e-6), categories | {"class": [0, 1]}
    tree = dirdp.choose_structure(guarantee, frame, categories=categories)
    assert dict(tree)["b"] == ("a",)
    model = dirdp.naive_bayes(frame, y, categories=kinds, structure=tree)
    parents = {"class": [], "a": ["class"], "b": ["a", "class"], "c": [*dict(tree)["c"], "class"]}
    same = dirdp.bayesian_network(frame | {"class": y}, parents, categories=kinds)
    assert dirdp.tables(model) == dirdp.tables(same)
    with pytest.raises(dirdp.errors.ArgumentError, match="after=structure"):
        dirdp.plan(guarantee, model, mechanism="marginals")
    release = planned_sample(guarantee, model, mechanism="marginals", after=tree)
    assert dirdp.verify(release)
    log_proba = dirdp.predict_log_proba(release, frame, target="class")
    assert log_proba["class"].values.tolist() == [0, 1]
    # A copy of a feature says no more than the feature: the probability given both is that given the one.
    seen = np.exp(log_proba.values[(frame["a"] == 1) & (frame["b"] == 1), 1].mean())
    assert seen == pytest.approx(0.7, abs=0.05)
    for wrong in ({"class": ["a"]}, {"d": ["a"]}):
        with pytest.raises(dirdp.errors.ArgumentError, match="not a feature"):
            dirdp.naive_bayes(frame, y, categories=kinds, structure=wrong)
    with pytest.raises(dirdp.errors.ArgumentError, match="parent"):
        dirdp.naive_bayes(frame, y, categories=kinds, structure={"a": ["d"]})


def test_missing_and_undeclared_values_are_one_of_the_categories():
    """Oracle: the same records with the category written out."""
    records = {"a": ["x", None, "z", "x"], "b": [1, 2, 9, 2]}
    labels = {"a": ["x", "y"], "b": [1, 2]}
    model = dirdp.bayesian_network(records, {"a": [], "b": ["a"]}, categories=labels, otherwise={"a": "y", "b": 2})
    written = {"a": ["x", "y", "y", "x"], "b": [1, 2, 2, 2]}
    expected = dirdp.bayesian_network(written, {"a": [], "b": ["a"]}, categories=labels)
    for name in ("n_a", "n_b"):
        found, right = (one.rvs_to_values[one[name]].data for one in (model, expected))
        assert found.tolist() == right.tolist()
