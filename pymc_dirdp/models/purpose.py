"""What a model was built for and from, where this library built it: its objective, and a structure that was chosen."""

from weakref import WeakKeyDictionary

import pymc as pm

__all__ = ["build_for", "built_for", "chosen_structure"]

_OBJECTIVES: WeakKeyDictionary[pm.Model, str] = WeakKeyDictionary()
_STRUCTURES: WeakKeyDictionary[pm.Model, object] = WeakKeyDictionary()


def build_for(model: pm.Model, *, objective: str, structure: object = None) -> None:
    """Remember the objective of a model, and its structure if that was chosen from data. A copy does not know them."""
    _OBJECTIVES[model] = objective
    if structure is not None:
        _STRUCTURES[model] = structure


def built_for(model: pm.Model) -> str | None:
    """The objective that was remembered; None for a model that a user wrote."""
    return _OBJECTIVES.get(model)


def chosen_structure(model: pm.Model) -> object:
    """The structure that was chosen from data; None for any other model."""
    return _STRUCTURES.get(model)
