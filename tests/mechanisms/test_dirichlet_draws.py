"""The likelihood ratio is that of the densities."""

import numpy as np
from scipy.stats import chisquare, dirichlet, laplace, norm

import pymc_dirdp as dirdp
from pymc_dirdp.sampling.exact import positive_frequencies

X, Y = np.array([2.0, 1.0, 4.0]), np.array([1.0, 2.0, 4.0])


def test_dirichlet_ratios_are_those_of_the_densities():
    mechanism = dirdp.mechanisms.DirichletMechanism([0.5, 1.0, 2.0], 0.3)
    draws = mechanism.sample(X, released_draws=20, sampler="fast", random_seed=1)
    expected = [
        dirichlet.logpdf(p / p.sum(), mechanism.concentration(X))
        - dirichlet.logpdf(p / p.sum(), mechanism.concentration(Y))
        for p in draws
    ]
    np.testing.assert_allclose(mechanism.log_likelihood_ratio(draws, X, Y), expected, rtol=1e-7, atol=1e-9)
    # A component that is zero on a grid counts as half a step.
    on_grid = np.array([[0.0, 0.25, 0.75]])
    assert np.isfinite(mechanism.log_likelihood_ratio(on_grid, X, Y, floor=0.125)).all()


def test_noise_ratios_are_those_of_the_densities_up_to_a_constant():
    outputs = np.random.default_rng(1).normal(size=(20, 3)) * 3 + X
    for mechanism, distribution in (
        (dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(3), 2.0), norm(scale=2.0)),
        (dirdp.mechanisms.GeometricMechanism(np.ones(3), 2.0), laplace(scale=2.0)),
    ):
        expected = (distribution.logpdf(outputs - X) - distribution.logpdf(outputs - Y)).sum(axis=1)
        found = mechanism.log_likelihood_ratio(outputs, X, Y)
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_ratios_of_finite_mechanisms_are_those_of_their_distributions():
    mechanism = dirdp.papers.TruncatedNoiseMechanism([1.0, 1.0], 5, 1.0)
    x, y = mechanism.worst_neighbours()
    outcomes, p = mechanism.distribution(x)
    _, q = mechanism.distribution(y)
    found = mechanism.log_likelihood_ratio(outcomes.astype(float), x, y)
    np.testing.assert_allclose(found, np.log(p) - np.log(q), rtol=1e-9)
    # What neither of them can output says nothing.
    assert mechanism.log_likelihood_ratio(np.array([[9.0, -4.0]]), x, y) == 0


def test_outputs_that_no_mechanism_gives_do_no_harm():
    mechanism = dirdp.mechanisms.DirichletMechanism([0.5, 1.0, 2.0], 0.3)
    strange = np.array([[-1.0, 0.0, 1e100], [0.0, 0.0, 0.0]])
    assert np.isfinite(mechanism.log_likelihood_ratio(strange, X, Y)).all()


def test_the_counts_of_an_urn_have_the_distribution_of_the_likelihood_and_lie_on_its_grid():
    counts, n, grid = np.array([4, 1]), 20_000, positive_frequencies(np.array([[i, 6 - i] for i in range(7)]), 6)
    mechanism, other = (dirdp.mechanisms.DirichletMechanism([1.0, 0.5], r) for r in (0.7, 0.9))
    draws = mechanism.sample(counts, released_draws=n, steps=6, random_seed=5)
    seen = np.bincount(np.rint(((2 * 6 + 2) * draws[:, 0] - 1) / 2).astype(int), minlength=7)
    distribution, wrong = (np.exp(one.log_likelihood(grid, counts, steps=6)) for one in (mechanism, other))
    assert chisquare(seen, n * distribution / distribution.sum()).pvalue > 1e-6
    assert chisquare(seen, n * wrong / wrong.sum()).pvalue < 1e-6
    assert mechanism.is_on_grid(draws, 6)
    assert not mechanism.is_on_grid(draws, None)
    assert not mechanism.is_on_grid(draws, 7)
