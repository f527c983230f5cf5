"""A directive that documents one kind of the names in `pymc_dirdp.__all__`.

The pages name kinds, never functions, so the reference cannot forget a public name or keep one that is gone.
"""

import inspect
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import pymc_dirdp

KINDS = ("verbs", "guarantees", "mechanisms", "objects", "plots", "errors", "modules")


def kind_of(name: str) -> str:
    """The one kind that a public name belongs to."""
    thing = getattr(pymc_dirdp, name)
    if inspect.ismodule(thing):
        return "modules"
    if inspect.isclass(thing):
        if issubclass(thing, Exception):
            return "errors"
        if issubclass(thing, pymc_dirdp.Guarantee):
            return "guarantees"
        return "mechanisms" if thing.__module__.startswith("pymc_dirdp.mechanisms.") else "objects"
    if callable(thing):
        return "plots" if name.startswith("plot_") else "verbs"
    return "objects"


def entry(name: str) -> str:
    """The autodoc directive for a public name."""
    thing = getattr(pymc_dirdp, name)
    if inspect.ismodule(thing):
        return f".. automodule:: pymc_dirdp.{name}\n   :members:\n"
    if inspect.isclass(thing):
        return f".. autoclass:: pymc_dirdp.{name}\n   :members:\n"
    if callable(thing):
        return f".. autofunction:: pymc_dirdp.{name}\n"
    return f".. autodata:: pymc_dirdp.{name}\n   :no-value:\n"


class PublicNames(SphinxDirective):
    """`{public-names} verbs` documents every public verb, in alphabetical order."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """Parse one autodoc directive for each name of the kind."""
        (kind,) = self.arguments
        if kind not in KINDS:
            raise self.error(f"Unknown kind {kind!r}; expected one of {', '.join(KINDS)}.")
        names = [name for name in sorted(getattr(pymc_dirdp, "__all__", [])) if not name.startswith("_")]
        entries = [entry(name) for name in names if kind_of(name) == kind]
        if not entries:
            return self.parse_text_to_nodes("None in this version.")
        body = "\n".join(entries)
        return self.parse_text_to_nodes(f"````{{eval-rst}}\n{body}\n````")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True}
