"""What a model was built for, where this library built it: the objective with which it is planned."""

from weakref import WeakKeyDictionary

import pymc as pm

__all__ = ["build_for", "built_for"]

_OBJECTIVES: WeakKeyDictionary[pm.Model, str] = WeakKeyDictionary()


def build_for(model: pm.Model, *, objective: str) -> None:
    """Remember the objective of a model. A copy of the model does not know it."""
    _OBJECTIVES[model] = objective


def built_for(model: pm.Model) -> str | None:
    """The objective that was remembered; None for a model that a user wrote."""
    return _OBJECTIVES.get(model)
