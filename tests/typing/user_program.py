"""The program of a user, checked by mypy and basedpyright in their strict modes and never run.

Each `assert_type` line holds what an editor shows for a public name. `.ci/run` calls both type checkers.
"""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

import pymc_dirdp as dirdp
from pymc_dirdp.counting.counts import Counts

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
assert_type(TARGET.epsilon, float)
assert_type(dirdp.privacy.convert(dirdp.ZeroCDP(rho=0.1), dirdp.ApproxDP, delta=1e-6), dirdp.ApproxDP)
others: list[dirdp.Guarantee] = [dirdp.TruncatedCDP(rho=0.1, omega=20.0), dirdp.PureDP(epsilon=1.0)]
others += [dirdp.RenyiDP(order=8.0, epsilon=0.5)]


def curator(model: pm.Model, folder: Path) -> xr.DataTree:
    """From the plan to the release, with a budget."""
    found = dirdp.tables(model)
    assert_type(found, tuple[dirdp.releases.Table, ...])
    assert_type(found[0].shape, tuple[int, ...])

    plan = dirdp.plan(TARGET, model, adjacency="add-remove", released_draws=2, weights={"p": 1.0})
    assert_type(plan, dirdp.releases.Plan)
    assert_type(plan.digest, str)
    assert_type(plan.composition.epsilon(1e-6), float)
    assert_type(dirdp.report(plan), dirdp.releases.Report)
    dirdp.save(plan, folder / "plan.json")
    again: dirdp.releases.Plan = dirdp.load(folder / "plan.json")
    assert_type(again.text, str)

    ledger = dirdp.Ledger(TARGET, folder / "ledger.db", unit="person")
    release = dirdp.sample(plan, model, ledger=ledger)
    assert_type(release, xr.DataTree)
    assert_type(dirdp.sample(TARGET, model, mechanism="auto", n_records=592, random_seed=1), xr.DataTree)
    entry = ledger.spend(TARGET, what="a table that another program released")
    assert_type(entry.what, str)
    assert_type(ledger.left, dict[str, float])
    assert_type(ledger.head, str)

    assert_type(dirdp.statement(release), dirdp.releases.Statement)
    assert_type(dirdp.statement(release).to_json(), str)
    diagnosis = dirdp.diagnose(release, model)
    assert_type(dirdp.report(diagnosis), dirdp.releases.Report)
    assert_type(diagnosis, xr.DataTree)
    # An error of the library is caught by its base class.
    try:
        assert_type(dirdp.curator.exact_posterior(model, 1000, random_seed=1), xr.DataTree)
    except dirdp.DirdpError as error:
        assert_type(str(error) + dirdp.__version__, str)
    return release


def anybody(release: xr.DataTree) -> None:
    verification = dirdp.verify(release)
    assert_type(verification, dirdp.releases.Verification)
    assert_type(verification.stated, dirdp.Guarantee)
    assert_type(verification.recomputed, dirdp.Guarantee | None)
    assert_type(str(dirdp.report(release)), str)
    assert_type(dirdp.analyse([release, release], 100, same_records=False, random_seed=1), xr.DataTree)
    assert_type(dirdp.estimate(release, prior={"p": [1, 1, 1, 1]}), dirdp.releases.Estimates)
    assert_type(dirdp.releases.sample_posterior_predictive(release, n_records=100, random_seed=1), xr.DataTree)
    combined = dirdp.papers.combine([0.3, 0.4], [0.01, 0.01])
    assert_type(combined, dirdp.papers.Combined)
    assert_type(combined.interval(0.9), tuple[NDArray[np.float64], NDArray[np.float64]])
    with dirdp.releases.analyst_model(release, ["p"]) as model:
        assert_type(model, pm.Model)
        again: object = dirdp.release_logp(release, [0.2, 0.5, 0.1, 0.2], "p")
        assert again is not None
    assert_type(dirdp.releases.latent_counts(dirdp.analyse(release), release, random_seed=1), xr.Dataset)


def planning(counts: NDArray[np.int64]) -> None:
    """What is decided without data, and mechanisms on their own."""
    dirichlet = dirdp.calibrate(TARGET, prior=[1, 1, 1], n_records=100)
    assert_type(dirichlet, dirdp.mechanisms.DirichletMechanism)
    comparison = dirdp.compare(TARGET, prior=np.ones(3), n_records=100)
    assert_type(comparison, dirdp.planning.Comparison)
    frontier = dirdp.privacy_utility([TARGET], prior=[1, 1, 1], n_records=100)
    assert_type(frontier, dirdp.planning.Frontier)
    assert_type(frontier.amounts, tuple[float, ...])
    assert_type(dirdp.expected_error(TARGET, prior=[1, 1, 1], n_records=100), float)
    assert_type(dirdp.least_records(0.1, TARGET, prior=[1, 1, 1]), int)

    prior = np.ones(3)
    several: list[dirdp.mechanisms.Mechanism] = [
        dirdp.mechanisms.DirichletMechanism(prior, 0.1),
        dirdp.mechanisms.DiscreteGaussianMechanism.for_guarantee(TARGET, prior=prior),
        dirdp.mechanisms.GeometricMechanism.for_guarantee(TARGET, prior=prior),
        dirdp.papers.TruncatedNoiseMechanism.for_guarantee(TARGET, prior=prior, n_records=20),
    ]
    for mechanism in several:
        assert_type(mechanism.epsilon(1e-6), float)
        assert_type(mechanism.delta(1.0), float)
        assert_type(mechanism.renyi(np.array([2.0, 4.0])), float | NDArray[np.float64])
        assert_type(mechanism.satisfies(TARGET), bool)
    assert_type(dirichlet.sample(counts, released_draws=2, random_seed=1), NDArray[np.float64])

    output = dirdp.mechanisms.MechanismOutput(dirichlet, dirichlet.sample(counts), prior=prior, n_records=20)
    assert_type(dirdp.analyse(output, 100), xr.DataTree)
    assert_type(dirdp.estimate([output, output]), dirdp.releases.Estimates)

    audited = dirdp.audit(dirichlet, claim=TARGET, n=1000, random_seed=1)
    assert_type(audited, dirdp.auditing.Audit)
    assert_type(audited.verdict, str)

    def black_box(table: NDArray[np.float64]) -> NDArray[np.float64]:
        return table + np.random.default_rng().normal(size=table.shape)

    assert_type(dirdp.audit(black_box, pair=([3, 4], [4, 3]), n=1000), dirdp.auditing.Audit)


def records() -> None:
    frame = {"eye": np.array(["blue", "green"]), "left": np.array([True, False])}
    categories: dict[str, list[Any]] = {"eye": ["blue", "green"], "left": [False, True]}
    assert_type(dirdp.count(frame, ["eye", "left"], categories=categories), Counts)
    model = dirdp.naive_bayes({"eye": frame["eye"]}, frame["left"], categories=categories, target="left")
    assert_type(model, pm.Model)
    network = dirdp.bayesian_network(frame, {"eye": [], "left": ["eye"]}, categories=categories)
    assert_type(network, pm.Model)
    release = dirdp.sample(TARGET, network)
    assert_type(dirdp.predict_log_proba(release, frame, target="left"), xr.DataArray)
    assert_type(dirdp.log_likelihood(release, frame, draws=500), NDArray[np.float64])
    assert_type(dirdp.log_likelihood(dirdp.analyse(release), frame), NDArray[np.float64])
    assert_type(dirdp.predict_log_proba(release, frame, draws="released"), xr.DataArray)
    dirdp.synthetic(release, 100, n_sets=20, random_seed=1)
    assert_type(dirdp.fit(release), xr.DataTree)
