"""Shares that are selected, moved, stacked or chosen by codes: no person loses more than the reading says.

The cell of each record is found by its value: every share has a value of its own, so the probability of a record, as
PyTensor computes it, tells which cell it feeds. The exact divergence between the distributions of a release of all
tables, before and after one person changes, is compared with the sum of the claims.
"""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace

from pymc_dirdp.errors import DirdpError
from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.models.observations import find_observations
from pymc_dirdp.models.privacy_unit import unit_options
from pymc_dirdp.models.tables import tables
from pymc_dirdp.models.whose_records import read_unit
from pymc_dirdp.privacy.people import Contribution
from tests.oracles import dirichlet_renyi
from tests.planned import counts_of

R, ALPHA = 0.05, 0.6
ORDERS = (1.5, 2.0, 4.0)
NX, NY, NZ, K = 3, 2, 2, 3


def share(name, *rows, d):
    """A Beta variable of these rows, or a Dirichlet variable of d categories."""
    return pm.Beta(name, 1, 1, shape=rows) if d is None else pm.Dirichlet(name, np.ones((*rows, d)))


def one(p, axes="xy"):
    return {"one": (p, axes)}


def beside(condition, d):
    return condition if d is None else condition[..., None]


# The shares of each observed variable, and the dims of its observations; x are codes of one axis, xy of two.
SHAPES = {
    "columns by codes": lambda data, d: one(share("a", K, NY, d=d)[data["cx"]]),
    "one code for a row": lambda data, d: one(share("a", K, d=d)[data["cx"]][:, None]),
    "stacked": lambda data, d: one(pt.stack([share("a", d=d), share("b", d=d)])),
    "a table for each person": lambda data, d: one(pt.stack([share(name, d=d) for name in "abc"])[:, None]),
    "a part in reverse": lambda data, d: one(share("a", NX + 1, d=d)[:0:-1][:, None]),
    "entries apart": lambda data, d: {"one": ((a := share("a", 3, d=d))[0], "x"), "two": (a[2], "x")},
    "entries that meet": lambda data, d: {"one": ((a := share("a", 3, d=d))[:2], "xy"), "two": (a[1], "x")},
    "a table and a part": lambda data, d: {"one": (a := share("a", NX, NY, d=d), "xy"), "two": (a[:, 1], "x")},
    "switched": lambda data, d: one(pt.switch(beside(data["bx"], d), (a := share("a", 2, d=d))[0], a[1]), "x"),
    "switched tables": lambda data, d: one(pt.switch(beside(data["bxy"], d), share("a", NY, d=d), share("b", NY, d=d))),
    "transposed": lambda data, d: one((a := share("a", NZ, NY, d=d)).dimshuffle(1, 0, *range(2, a.type.ndim)), "xyz"),
    "codes of two arrays": lambda data, d: one(share("a", 6, d=d)[pt.as_tensor(data["bx"]) * 3 + data["cx"]], "x"),
    "rows and codes": lambda data, d: {"one": ((a := share("a", K, d=d))[data["cx"]], "x"), "two": (a[::-1], "xk")},
    "the rest": lambda data, d: {
        "one": (1 - (a := share("a", NY, d=d)) if d is None else (a := share("a", NY, d=d))[:, ::-1], "xy"),
        "two": (a, "xy"),
    },
}
CODES = {"cx": "x", "bx": "x", "bxy": "xy"}
LENGTHS = {"x": NX, "y": NY, "z": NZ, "k": K}


def answers(rng, axes, d, n, value=None):
    """Codes and outcomes of everybody: any, or all the lowest (0) or the highest (1)."""
    data = {}
    for name, dims in {**CODES, **axes}.items():
        highest = {"cx": K - 1, "bx": 1, "bxy": 1}.get(name, (d or 2) - 1 if n is None else n)
        shape = tuple(LENGTHS[dim] for dim in dims)
        data[name] = rng.integers(0, highest + 1, shape) if value is None else np.full(shape, value * highest)
    return data


def model_of(build, data, d, n):
    with pm.Model(coords={dim: range(length) for dim, length in LENGTHS.items()}) as model:
        for name, (p, dims) in build(data, d).items():
            given = {"p": p, "observed": data[name], "dims": tuple(dims)}
            if n is not None:
                pm.Binomial(name, n=n, **given)
            else:
                (pm.Bernoulli if d is None else pm.Categorical)(name, **given)
    return model


class Oracle:
    """Counts records by value: every share has its own value, so the probability of a record tells its cell."""

    def __init__(self, build, d, n, shapes):
        self.d, self.n, self.shapes = d, n, list(shapes.values())
        rng = np.random.default_rng(0)
        cells = [rng.dirichlet(np.ones(shape[-1]), shape[:-1]) for shape in self.shapes]
        self.cells = np.concatenate([x.ravel() for x in cells])
        self.codes = {k: pt.tensor(k, shape=[LENGTHS[dim] for dim in on], dtype="int64") for k, on in CODES.items()}
        with pm.Model() as model:
            uses = build(self.codes, d)
        shares = {model[name]: pt.constant(x if d else x[..., 0]) for name, x in zip(shapes, cells, strict=True)}
        self.axes = {name: dims for name, (_, dims) in uses.items()}
        probabilities = clone_replace([p for p, _ in uses.values()], shares, rebuild_strict=False)
        function = pytensor.function(
            [*self.codes.values()], probabilities, mode=Mode(linker="py", optimizer=None), on_unused_input="ignore"
        )
        self.probabilities = lambda data: function(*(data[name] for name in self.codes))

    def count(self, data):
        counts = np.zeros(self.cells.size)
        for name, p in zip(self.axes, self.probabilities(data), strict=True):
            value = data[name]
            p = np.broadcast_to(p if self.d else np.stack([1 - p, p], axis=-1), (*value.shape, self.d or 2))
            many = [self.n - value, value] if self.n else [value == k for k in range(p.shape[-1])]
            distance = np.abs(p[..., None] - self.cells)
            assert distance.min(axis=-1).max() < 1e-12
            np.add.at(counts, distance.argmin(axis=-1), np.stack(many, axis=-1))
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [x.reshape(shape) for x, shape in zip(np.split(counts, ends), self.shapes, strict=True)]


def neighbours(axes, d, n, unit):
    """Data of two or three, of which each pair differs in one person."""
    rng = np.random.default_rng(1)
    # Without a unit, a person is a record of each observed variable, with the codes of its own.
    dims = unit or max(axes.values(), key=len)
    for entry in itertools.product(*(range(LENGTHS[dim]) for dim in dims)):
        who = dict(zip(dims, entry, strict=True))
        base = answers(rng, axes, d, n)
        several = []
        for value, of_two in ((0, 0), (1, 1), (0, 1), (1, 0)) if "two" in axes else ((0, 0), (1, 1), (None, None)):
            new = answers(rng, axes, d, n, value)
            if "two" in axes:
                new["two"] = answers(rng, axes, d, n, of_two)["two"]
            changed = {name: one.copy() for name, one in base.items()}
            for name, own in {**CODES, **axes}.items():
                if set(who) <= set(own) or not unit:
                    mine = tuple(who.get(dim, slice(None)) for dim in own)
                    changed[name][mine] = new[name][mine]
            several.append(changed)
        yield several


def parameters(counts, fill_row):
    """Of the distribution of a release; others are nobody, or a group in the last category."""
    found = ALPHA + R * counts
    found[..., -1] += fill_row
    return found


def cases(build, d, n):
    """The tables, the oracle and the observed variables of a model, whose counts are those of the oracle."""
    with pm.Model():
        axes = {name: dims for name, (_, dims) in build(answers(np.random.default_rng(0), {}, d, n), d).items()}
    data = answers(np.random.default_rng(0), axes, d, n)
    model = model_of(build, data, d, n)
    every = tables(model)
    oracle = Oracle(build, d, n, {table.name: table.shape for table in every})
    for counts, cells in zip(counts_of(model).values(), oracle.count(data), strict=True):
        np.testing.assert_array_equal(counts, cells)
    return model, every, oracle


def worst(case, unit, relation, claimed=None):
    """The largest divergence of a neighbour over the claim, or another one; None where the model is refused."""
    model, every, oracle = case
    said = unit_options(unit=unit, contribution=None, public=(), disjoint=None, adjacency=relation)
    try:
        reading = read_unit(find_observations(every, model), model, said)
    except DirdpError:
        return None
    claims = 0
    for table in every:
        adds = claimed or reading.contribution(table.name)
        mechanism = DirichletMechanism(np.full(table.shape, ALPHA), R, contribution=adds, adjacency=relation)
        claims = claims + np.array(mechanism.renyi(ORDERS))
    finite, closest = np.isfinite(claims), 0.0
    for several in neighbours(oracle.axes, oracle.d, oracle.n, unit):
        sides = [oracle.count(one) for one in several]
        for first, second in itertools.permutations(sides, 2):
            # Under add-remove, what is gained is the person.
            common = [np.minimum(a, b) for a, b in zip(first, second, strict=True)]
            if reading.n_records_is_public:
                # What is public of the totals of rows is the same for both.
                for table, a, b in zip(every, first, second, strict=True):
                    private = set(range(a.ndim)) - set(reading.contribution(table.name).fixed_axes)
                    np.testing.assert_array_equal(a.sum(axis=tuple(private)), b.sum(axis=tuple(private)))
            here = [a - c for a, c in zip(first, common, strict=True)]
            there = [b - c for b, c in zip(second, common, strict=True)]
            nobody = [np.zeros_like(a) for a in here]
            pairs = [(here, nobody), (nobody, here)] if relation == "add-remove" else [(here, there)]
            for (p, q), fill_row in itertools.product(pairs, (0, 1e6)):
                both = [(parameters(a, fill_row), parameters(b, fill_row)) for a, b in zip(p, q, strict=True)]
                truth = np.array([sum(dirichlet_renyi(order, u, v) for u, v in both) for order in ORDERS])
                closest = max(closest, np.max(truth[finite] / claims[finite], initial=0.0))
    return closest


@pytest.mark.thorough
@pytest.mark.parametrize("build", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("d", "n"), [(None, None), (3, None), (None, 2)], ids=["bernoulli", "categorical", "binomial"])
def test_no_person_changes_more_than_was_read_of_any_formula(build, d, n):
    case, found = cases(build, d, n), []
    for unit, relation in itertools.product((None, ("x",), ("y",), ("x", "y")), ("replace-one", "add-remove")):
        # Without a unit, a trial is a person, and not an observation of several trials.
        if unit or not n:
            found.append(worst(case, unit, relation))
    closest = max(one for one in found if one is not None)
    # Room for the rounding of the log-gammas of the oracle alone, which are large where there is a group.
    assert closest <= 1 + 1e-6
    # A claim is above what is possible where a record that may be in one of two tables or likelihoods is in both.
    assert closest > 0.49


@pytest.mark.parametrize("name", ["columns by codes", "transposed"])
def test_a_person_read_as_one_record_is_refuted_by_the_same_check(name):
    """The claim of a single record is too small where a person holds several."""
    assert worst(cases(SHAPES[name], None, None), ("x",), "replace-one", Contribution()) > 1.1
