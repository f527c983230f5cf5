"""A directive that documents one kind of the public names: those of `pymc_dirdp`, and those of its rooms.

The pages name kinds and rooms, never functions, so the reference cannot forget a public name or keep one that is gone.
"""

import inspect
from importlib import import_module
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import pymc_dirdp

KINDS = ("verbs", "guarantees", "objects")


def kind_of(thing: object) -> str:
    """The one kind that a public name of the package belongs to; a room is none."""
    if inspect.ismodule(thing):
        return "room"
    if not inspect.isclass(thing):
        return "verbs"
    return "guarantees" if issubclass(thing, pymc_dirdp.Guarantee) else "objects"


def entry(module: str, name: str) -> str:
    """The autodoc directive for a public name."""
    thing = getattr(import_module(module), name)
    if inspect.isclass(thing):
        return f".. autoclass:: {module}.{name}\n   :members:\n"
    return f".. autofunction:: {module}.{name}\n" if callable(thing) else f".. autodata:: {module}.{name}\n"


def of_kind(kind: str) -> list[str]:
    """The package's names of a kind."""
    return [name for name in pymc_dirdp.__all__ if kind_of(getattr(pymc_dirdp, name)) == kind]


def entries(kind: str) -> list[str]:
    """The directives for a kind of the package's names, or for those of a room that are not the package's too."""
    if kind in KINDS:
        return [entry("pymc_dirdp", name) for name in of_kind(kind)]
    room = getattr(pymc_dirdp, kind)
    return [entry(room.__name__, name) for name in room.__all__ if name not in pymc_dirdp.__all__]


def summary(name: str) -> str:
    """A line about a public name of the package, which leads to its entry."""
    first, _, _ = inspect.getdoc(getattr(pymc_dirdp, name)).partition("\n\n")
    return f"- :py:obj:`{name} <pymc_dirdp.{name}>`: {first[0].lower()}{' '.join(first.split())[1:]}"


class PublicNames(SphinxDirective):
    """`{public-names} verbs` documents every public verb, `{public-names} plots` every function of the room `plots`.

    With `:summary:` there is one line for each.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, object]] = {"summary": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Parse one autodoc directive for each name of the kind."""
        (kind,) = self.arguments
        rooms = of_kind("room")
        if kind not in (*KINDS, *rooms):
            raise self.error(f"Unknown kind {kind!r}; expected one of {', '.join((*KINDS, *rooms))}.")
        lines = map(summary, of_kind(kind)) if "summary" in self.options else entries(kind)
        body = "\n".join(lines)
        return self.parse_text_to_nodes(f"````{{eval-rst}}\n{body}\n````")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True}
