"""Releases by a plan, with all options that a plan has, what is read of a model, and models that are released often."""

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.models.observations import find_observations, read_counts
from pymc_dirdp.models.privacy_unit import unit_options
from pymc_dirdp.models.tables import root_model
from pymc_dirdp.models.whose_records import tables_and_people

HAIR = ("black", "brown", "red", "blond")


def one_row(counts=(30, 20, 10), prior=1.0, labels=HAIR, *, dim="hair"):
    """A model of one table p of one row, with labels."""
    with pm.Model(coords={dim: list(labels)[: len(counts)]}) as model:
        p = pm.Dirichlet("p", a=np.broadcast_to(prior, len(counts)).astype(float), dims=dim)
        pm.Multinomial("x", n=int(np.sum(counts)), p=p, observed=counts)
    return model


def planned_sample(guarantee, model=None, *, random_seed=None, ledger=None, progressbar=True, **planning):
    """A release of a model by the plan of these options; by a plan that was made before, if it comes first."""
    plan = guarantee
    if isinstance(guarantee, dirdp.Guarantee):
        plan = dirdp.plan(guarantee, model, progressbar=progressbar, **planning)
    return dirdp.sample(plan, model, random_seed=random_seed, ledger=ledger, progressbar=progressbar)


def counts_of(model):
    """The secret counts of each table of a model, by name, as a release reads them."""
    root = root_model(model)
    return {table.name: read_counts(find_observations([table], root)) for table in dirdp.tables(root)}


def read_people(model, adjacency="replace-one", **said):
    """The tables of a model and whose records they hold, by what a user says."""
    nothing = {"unit": None, "contribution": None, "public": (), "disjoint": None}
    return tables_and_people(root_model(model), unit_options(**nothing | said, adjacency=adjacency))


STUDENTS = (108, 286, 71, 127)  # Snee (1974)


def hair_model(counts=STUDENTS, prior=1.0, labels=HAIR):
    return one_row(counts, prior, labels)


def two_tables():
    """A table of two rows, and a rate, of the same fifty people."""
    with pm.Model(coords={"hair": ["black", "brown", "red"], "where": ["here", "there"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("where", "hair"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[20, 6, 4], [10, 5, 5]])
        pm.Binomial("z", n=50, p=pm.Beta("rate", 1, 1), observed=5)
    return model


def three_questions():
    """Forty people, each with an answer to three questions."""
    with pm.Model(coords={"person": range(40), "item": ["a", "b", "c"], "yes": [0, 1]}) as model:
        p = pm.Dirichlet("p", a=np.ones((3, 2)), dims=("item", "yes"))
        pm.Categorical("answer", p=p, observed=np.zeros((40, 3), int), dims=("person", "item"))
    return model
