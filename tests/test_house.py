"""Rules of the house that no type checker knows: who may ask for the kind of a thing, and how long a signature is."""

import ast

from pymc_dirdp import mechanisms, papers
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.registry import by_class_name
from pymc_dirdp.privacy.guarantees import KINDS
from tests.sources import FILES, PACKAGE, tree_of

TREES = {path.relative_to(PACKAGE).as_posix(): tree_of(path) for path in FILES if path.name != "__init__.py"}


def family(kind):
    return {kind.__name__}.union(*map(family, kind.__subclasses__()))


# A class is below another once its file is imported.
PUBLIC = [name for room in (mechanisms, papers) for name in room.__all__ if getattr(room, name)]
# The classes that only their own room tells apart. Everybody else asks the object.
SWITCHES = {"privacy": set(KINDS), "mechanisms": family(Mechanism)}
# Whether what somebody passed is a mechanism at all is no question to the object.
AT_ALL = {"Mechanism", "TableMechanism"}

# Products that a BLAS library computes. `numerics.quadrature.inner` and `np.einsum` do not wake its threads.
BLAS = {"dot", "inner", "matmul", "multi_dot", "tensordot", "vdot"}

MOST_PARAMETERS = 8
# A function that is compiled takes arrays and no object that holds them; what is said of a model is said by name.
LONG = {
    "sampling/exact.py": {"_walk"},
    "sampling/compiled_urn.py": {"_urns"},
    "releases/private_model.py": {"private_model"},
    "releases/analysis.py": {"analyse"},
}


def names_in(node):
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def asked_kinds(tree):
    """The names that decide a branch: `match`, `isinstance`, a comparison, or the keys and values of a table."""
    for node in ast.walk(tree):
        match node:
            case ast.MatchClass():
                yield from names_in(node.cls)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                yield from names_in(kinds)
            case ast.Call(func=ast.Attribute(value=kind, attr="of")):
                yield from set(names_in(kind)) - AT_ALL
            case ast.Compare():
                yield from names_in(node)
            case ast.Dict() | ast.DictComp():
                yield from names_in(node)


def own_parameters(function):
    """Parameters but `self` and those that are only handed to another function under their own name."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    uses = {name: 0 for name in names if name not in ("self", "cls")}
    handed = dict.fromkeys(uses, 0)
    for node in ast.walk(ast.Module(function.body, [])):
        if isinstance(node, ast.Name) and node.id in uses:
            uses[node.id] += 1
        elif isinstance(node, ast.keyword) and isinstance(node.value, ast.Name) and node.arg == node.value.id in uses:
            handed[node.arg] += 1
    return [name for name in uses if uses[name] == 0 or uses[name] > handed[name]]


def products(tree):
    """The lines that ask a BLAS library for a product, whose threads wake for some ten thousand numbers."""
    for node in ast.walk(tree):
        names = [node.attr] if isinstance(node, ast.Attribute) else []
        names += [one.name for one in node.names] if isinstance(node, ast.ImportFrom) and node.module == "numpy" else []
        if isinstance(getattr(node, "op", None), ast.MatMult) or BLAS & set(names):
            yield node.lineno


def test_only_the_room_of_a_family_asks_which_member_a_thing_is():
    for file, tree in TREES.items():
        asked = set(asked_kinds(tree))
        for room, kinds in SWITCHES.items():
            assert file.startswith(f"{room}/") or not kinds & asked, file


def test_curves_wake_no_threads():
    assert {file: found for file, tree in TREES.items() if "privacy/" in file and (found := list(products(tree)))} == {}
    each = "a @ b\na @= b\nnp.dot(a, b)\na.dot(b)\nnp.linalg.matmul(a, b)\nfrom numpy import vdot\ninner(a, b)"
    assert sorted(products(ast.parse(each))) == [1, 2, 3, 4, 5, 6]


def test_signatures_are_short():
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in LONG.get(file, ()):
                own = own_parameters(node)
                assert len(own) <= MOST_PARAMETERS, f"{file}: {node.name} has {', '.join(own)}"
    (function,) = ast.parse("def f(self, a, b, c, d):\n    g(a, b=b, c=d)\n    return h(d=d)").body
    assert own_parameters(function) == ["a", "c", "d"]


def test_each_way_to_ask_is_seen():
    cases = "ApproxDP(epsilon=e)", "guarantees.PureDP()", "RenyiDP() | None"
    for code in (
        *(f"match x:\n    case {case}: pass" for case in cases),
        *("isinstance(x, ZeroCDP | None)", "isinstance(x, (int, guarantees.ZeroCDP))", "type(x) is TruncatedCDP"),
        *("type(x).__name__ in ('PureDP', 'ZeroCDP')", "names = {'ApproxDP': 1}"),
        "{kind.__name__: kind for kind in (ApproxDP, PureDP)}",
    ):
        assert SWITCHES["privacy"] & set(asked_kinds(ast.parse(code))), code
    for name in {"NoisyCounts", "WholePosterior", "SimplexMechanism", "HellingerMechanism", *by_class_name()}:
        code = f"noise = mechanisms.{name}.of(mechanism)"
        assert SWITCHES["mechanisms"] & set(asked_kinds(ast.parse(code))) == {name}
    # To make a guarantee is not to ask for its kind.
    code = "def f(g: ApproxDP) -> RenyiDP:\n    return RenyiDP(order=2, epsilon=convert(g, PureDP).epsilon)"
    assert not SWITCHES["privacy"] & set(asked_kinds(ast.parse(code)))
