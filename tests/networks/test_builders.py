"""Naive Bayes and Bayesian networks: the models."""

import itertools
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.counting import tables as families
from pymc_dirdp.planning.expected_kl import a_priori_kl
from tests.planned import counts_of, planned_sample

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
    for prior, message in (
        ({"size": [1.0, 2.0]}, r"prior\['size'\] to broadcast"),
        (0.0, "> 0"),
        ({"sise": 2.0}, "prior has 'sise'"),
        ("flat", r"prior\['class'\] to be numbers, got a str"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            naive(prior=prior)


def test_a_value_that_was_not_declared_stops_the_model():
    with pytest.raises(dirdp.errors.DataError, match="'size'"):
        dirdp.naive_bayes(FRAME, CLASS, categories=CATEGORIES | {"size": ["small", "huge"]})
    with pytest.raises(dirdp.errors.ArgumentError, match="target="):
        dirdp.naive_bayes(FRAME, CLASS, categories={"legs": [2, 4]})
    with pytest.raises(dirdp.errors.DataError, match="different lengths"):
        dirdp.naive_bayes(FRAME, CLASS[:-1], categories=CATEGORIES)


def test_large_counts_are_preserved(monkeypatch):
    """PyMC stores integer arrays in 32 bits, which 3e9 records of one value would pass."""
    many = 3_000_000_001
    monkeypatch.setattr(families, "tabulate", lambda columns, shape, times: np.full(shape, many, dtype=np.int64))
    model = naive()
    for counts in counts_of(model).values():
        np.testing.assert_array_equal(counts, np.full(counts.shape, float(many)))
    assert counts_of(model)["p_class"].sum() == 3 * many


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chain", "PyMC reserves"),
        ("p_class", "'p_class' is a variable and also the table of 'class'"),
        ("n_class", "'n_class' is a variable and also the table of 'class'"),
        *((name, "without '/'") for name in ("a/b", "", "..", "a\\b", 1)),
        *((name, "control characters") for name in ("a\nb", "\x1b[2Ja", "a\0", "\ud800")),
    ],
)
def test_names_that_a_model_cannot_hold(name, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.naive_bayes({name: [0, 1]}, ["cat", "dog"], categories={"class": ["cat", "dog"], name: [0, 1]})


def of_labels(labels):
    return dirdp.bayesian_network({"x": labels}, {"x": []}, categories={"x": labels})


def test_labels_that_coords_keep_or_cannot_keep():
    """As coords 1 and "1" would be one text, and no record would be found in the release."""
    for labels in ([1, 2.5], [False, True], ["1", "2"], [2, 1]):
        assert list(of_labels(labels).coords["x"]) == labels
    for labels in ([1, "1"], ["True", True], [(0, 1), (1, 2)], [(0,), (0, 1)], [2**64, 1], [1j, 2]):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"categories\['x'\] to be .*texts or"):
            of_labels(labels)
    for label in ("a\nb", "a\x1b[2J", "\ud800", "a\x9b"):
        with pytest.raises(dirdp.errors.UnsupportedModelError, match=r"labels of the dim 'x' .* hold control"):
            of_labels([label, "b"])


# A view of networkx is a mapping from nodes or edges to dicts of attributes or neighbours, and no dict.
View = MappingProxyType
A_VIEW = r"got a mappingproxy, a view of a graph\. Pass the graph itself"


def graph(directed, **more):
    edges = View({("class", "legs", 0): {}}) if more else [("class", "legs")]
    return SimpleNamespace(nodes=["class", "legs"], edges=edges, is_directed=lambda: directed, **more)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (View({("class", "legs"): {}}), A_VIEW),
        (View({("class", "legs", 0): {}}), A_VIEW),
        (View({"class": {}, "legs": {}}), A_VIEW),
        (View({"class": {"legs": {}}, "legs": {}}), A_VIEW),
        (View({"class": View({"legs": {}}), "legs": View({})}), A_VIEW),
        (graph(False), "directed graph, got a SimpleNamespace"),
        (graph(True, is_multigraph=lambda: True), r"parallel edges\. Pass networkx.DiGraph\(graph\)"),
    ],
)
def test_views_of_a_graph_and_other_graphs_are_refused(structure, message):
    """Found by attack: `G.nodes` had no arrows, and `G.adj` all of them the wrong way round, without a word."""
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.bayesian_network(FRAME, structure, categories=CATEGORIES)


def test_tables_that_are_too_large_are_refused_before_a_record_is_read():
    categories = {name: range(1000) for name in "abc"}
    with pytest.raises(dirdp.errors.ArgumentError, match="a, b, c has 1000000000 cells"):
        dirdp.bayesian_network({}, {"a": [], "b": [], "c": ["a", "b"]}, categories=categories)


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


def test_a_parent_with_one_label_divides_nothing():
    records = {"a": list("xyxy"), "only": list("kkkk"), "c": list("ppqq")}
    categories = {"a": ["x", "y"], "only": ["k"], "c": ["p", "q"]}
    structure = {"a": [], "only": ["a"], "c": ["only", "a"]}
    model = dirdp.bayesian_network(records, structure, categories=categories)
    assert model.named_vars_to_dims["p_c"] == ("a", "c")
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model, mechanism="geometric")
    asked = {"a": ["x", "y"], "only": ["k", "k"]}
    assert dirdp.predict_log_proba(release, asked, target="c").shape == (2, 2)
    assert np.isfinite(dirdp.log_likelihood(release, records)).all()
    # Where no parent divides anything, one of them stays.
    alone = {"only": [], "other": [], "c": ["only", "other"]}
    kinds = {"only": ["k"], "other": ["k"], "c": ["p", "q"]}
    model = dirdp.bayesian_network(records | {"other": list("kkkk")}, alone, categories=kinds)
    assert model.named_vars_to_dims["p_c"] == ("only", "c")
    assert len(dirdp.tables(model)) == 3


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
    one, other = (next(p.mechanism for p in plan.parts if p.table.name == "p_c") for plan in (with_parent, without))
    assert (one.shape, other.shape) == ((1, 2), (2,))
    assert 0 < one.epsilon(1e-6) == pytest.approx(other.epsilon(1e-6), rel=1e-6)


def test_rows_that_stand_for_many_records():
    """The same model as that of the records themselves."""
    cells = {"a": ["x", "y", "x"], "b": ["u", "u", "v"], "n": [3, 1, 2]}
    model = dirdp.bayesian_network(
        cells, {"a": [], "b": ["a"]}, categories={"a": ["x", "y"], "b": ["u", "v"]}, counts="n"
    )
    found = counts_of(model)
    assert found["p_a"].tolist() == [5, 1]
    assert found["p_b"].tolist() == [[3, 2], [1, 0]]
    options = {"categories": {"a": ["x", "y"]}, "structure": {"a": []}, "counts": "n"}
    for last in ([], [-1], [0.5], [True], ["3"], [None], [float("nan")], [2**53]):
        with pytest.raises(dirdp.errors.DataError, match=r"nonnegative integers|different lengths") as raised:
            dirdp.bayesian_network({"a": ["x", "y", "x"], "n": [1, 2, *last]}, **options)
        assert "0.5" not in str(raised.value)
    with pytest.raises(dirdp.errors.ArgumentError, match="no column 'n'"):
        dirdp.bayesian_network({"a": ["x"]}, **options)


@pytest.mark.parametrize(("adjacency", "n_records"), [("replace-one", [400] * 3), ("add-remove", [None] * 3)])
def test_a_person_has_one_record_in_each_table(adjacency, n_records):
    """A feature's rows are chosen by the class, so the record may be in any row."""
    options = {"adjacency": adjacency, "mechanism": "geometric"}
    for model in (naive(), dirdp.bayesian_network(FRAME, NETWORK, categories=CATEGORIES)):
        plan = dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model, **options)
        for part in plan.parts:
            added = part.mechanism.contributed
            assert (added.records, set(added.axes)) == (1, {"any"} if part.table.name != "p_class" else set())
        assert [part.n_records for part in plan.parts] == n_records


def test_a_built_model_is_planned_for_the_estimate_unless_another_objective_is_given():
    """Each objective has the smaller error of its own kind."""
    target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    own, other = (dirdp.plan(target, naive(), **said) for said in ({}, {"objective": "posterior"}))
    assert (own.objective, other.objective) == ("estimate", "posterior")
    errors = [
        sum(float(a_priori_kl(part.mechanism, part.table.prior, part.n_records).estimate) for part in plan.parts)
        for plan in (own, other)
    ]
    assert errors[0] < errors[1]


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
    for name, counts in counts_of(expected).items():
        assert counts_of(model)[name].tolist() == counts.tolist()
