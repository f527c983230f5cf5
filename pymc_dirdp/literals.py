"""Types of the string options of public functions. The checks of these options use the same strings."""

from typing import Any, Literal, TypeAliasType, get_args

type AdjacencyName = Literal["replace-one", "add-remove"]
type MechanismName = Literal["dirichlet", "gaussian", "geometric", "joint", "marginals", "auto"]
type NoiseName = Literal["auto", "geometric", "gaussian", "joint"]
"""Mechanisms for a model of any discrete data."""
type MarginalsNoise = Literal["auto", "gaussian", "geometric"]
type CountNoise = Literal["gaussian", "geometric"]
type Postprocess = Literal["clip-and-smooth", "clip", "project"]
type MeasureName = Literal["levels", "families", "variables"]
type Strategy = Literal["optimal", "temper", "inflate", "algorithm-1"]
type Objective = Literal["posterior", "estimate", "prediction"]
type DrawObjective = Literal["posterior", "estimate"]
type Sampler = Literal["exact", "fast"]
type ErrorOf = Literal["draw", "estimate"]
"""The kind of an expected error."""
type BanditMechanism = Literal["geometric", "counts"]
type Schedule = Literal["batches", "every-round"]
type CurveName = Literal["delta", "renyi"]


def options_of(alias: TypeAliasType) -> tuple[Any, ...]:
    """The strings that a type allows.

    Examples
    --------
    >>> options_of(Sampler)
    ('exact', 'fast')
    """
    return get_args(alias.__value__)
