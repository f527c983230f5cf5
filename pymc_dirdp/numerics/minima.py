"""The mode of a posterior by Newton's method, with second derivatives as products with vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array

Product = Callable[[Array], Array]

# Solvers stop when the residual is this share of the right-hand side.
_CLOSE = 0.02


def minimised(
    objective: Callable[[Array], tuple[float, Array]],
    curvature: Callable[[Array, bool], Product],
    start: Array,
    close: float,
) -> Array:
    """A point near a minimum, where the norm of the gradient is at most `close`, or limited by rounding.

    The search ends after at most 500 steps and returns the last point. With noise far below one record, the norm of the
    gradient there can be more than a hundred times `close`.

    Parameters
    ----------
    objective : callable
        A function that returns the value and the gradient at a point.
    curvature : callable
        A function of a point and a flag. It returns a function that multiplies each row of an array of shape `(..., n)`
        by the matrix of second derivatives there. If the flag is True, it multiplies by the Gauss-Newton matrix, which
        is the identity plus a positive semidefinite matrix.
    start : array, shape (n,)
    close : float

    References
    ----------
    Steihaug (1983), The conjugate gradient method and trust regions in large scale optimization, SIAM Journal on
    Numerical Analysis 20, 626-637, for functions that are not convex. Frangella, Tropp and Udell
    (2023), Randomized Nyström preconditioning, SIAM Journal on Matrix Analysis and Applications 44, 718-752.
    """
    x = start
    value, gradient = objective(x)
    preconditioner = None
    for _ in range(500):
        length = float(np.linalg.norm(gradient))
        if length <= close:
            break
        if preconditioner is None:
            preconditioner = _Nystrom.of(curvature(x, True), len(x))
        # While the gradient is long, the Gauss-Newton matrix replaces the second derivatives, because its steps are
        # longer. The last argument is the final residual of the equation, relative to the gradient.
        step, steps = _solved(curvature(x, length > 10.0), -gradient, preconditioner, 0.05)
        # After more than a few steps a new preconditioner pays.
        if steps > 100:
            preconditioner = None
        slope = float(gradient @ step)
        # At most this number of halved steps.
        for halves in range(40):
            proposal = x + 0.5**halves * step
            result = objective(proposal)
            if result[0] <= value + 1e-4 * 0.5**halves * slope:
                break
        else:
            # Further decreases of the value are rounding.
            break
        x, (value, gradient) = proposal, result
    return x


def inverse_diagonal(product: Product, n: int) -> Array:
    """An estimate of the diagonal of the inverse of the identity plus a positive semidefinite matrix.

    Each entry is unbiased, and sums of many entries have small errors (Hutchinson).

    Parameters
    ----------
    product : callable
        It multiplies each row of an array of shape `(..., n)` by the matrix.
    n : int

    References
    ----------
    Bekas, Kokiopoulou and Saad (2007), An estimator for the diagonal of a matrix, Applied Numerical Mathematics 57,
    1214-1229.

    Examples
    --------
    >>> inverse_diagonal(lambda v: v * [1.0, 2.0, 4.0], 3).round(3)
    array([1.  , 0.5 , 0.25])
    """
    # The seed is fixed, so the result is reproducible.
    signs = np.random.default_rng(1).choice(np.array([-1.0, 1.0]), (8, n))
    solved, _ = _solved(product, signs, _Nystrom.of(product, n), _CLOSE)
    return np.asarray((signs * solved).mean(axis=0))


def log_determinant(product: Product, n: int, *, most: int = 500) -> float:
    """The logarithm of the determinant of the identity plus a positive semidefinite matrix.

    With more than `most` dimensions it is computed in a random subspace, which gives a lower bound.

    Parameters
    ----------
    product : callable
        It multiplies each row of an array of shape `(..., n)` by the matrix.
    n : int
    most : int, default 500
        The maximum number of dimensions of the subspace.

    Examples
    --------
    >>> round(log_determinant(lambda v: v * [1.0, 2.0, 4.0], 3), 6) == round(float(np.log(8)), 6)
    True
    """
    directions = np.eye(n) if n <= most else _directions(n, most)
    return float(np.linalg.slogdet(directions @ product(directions).T)[1])


def solve(product: Product, right: Array) -> Array:
    """Solutions of `H x = b` for each row b, where H is the identity plus a positive semidefinite matrix.

    Parameters
    ----------
    product : callable
        It multiplies each row of an array of shape `(..., n)` by the matrix.
    right : array, shape (rows, n)

    Examples
    --------
    >>> solve(lambda v: v * [1.0, 2.0, 4.0], np.ones((1, 3))).round(3)
    array([[1.  , 0.5 , 0.25]])
    """
    return _solved(product, right, _Nystrom.of(product, right.shape[-1]), _CLOSE)[0]


@final
@dataclass(frozen=True, eq=False)
class _Nystrom:
    """The inverse of the identity plus a low-rank approximation, scaled to its smallest eigenvalue."""

    vectors: Array
    factors: Array

    @classmethod
    def of(cls, product: Product, n: int) -> "_Nystrom":
        # A rank of at most 100, with at most 2e7 numbers.
        rank = max(1, min(n, 100, 2 * 10**7 // n))
        probes = _directions(n, rank)
        images = product(probes) - probes
        values, rotation = np.linalg.eigh(probes @ images.T)
        positive = values > 1e-10 * max(values.max(), float(np.finfo(np.float64).tiny))
        vectors, roots, _ = np.linalg.svd(
            (images.T @ rotation[:, positive]) / np.sqrt(values[positive]), full_matrices=False
        )
        eigenvalues = roots**2
        return cls(vectors.T, (eigenvalues.min(initial=np.inf) + 1) / (eigenvalues + 1) - 1)

    def __call__(self, v: Array) -> Array:
        product: Array = v + ((v @ self.vectors.T) * self.factors) @ self.vectors
        return product


def _directions(n: int, n_directions: int) -> Array:
    """Orthonormal rows."""
    return np.asarray(np.linalg.qr(np.random.default_rng(1).normal(size=(n, n_directions)))[0].T)


def _solved(product: Product, right: Array, preconditioner: _Nystrom, share: float) -> tuple[Array, int]:
    """Solutions of `H x = b` for each row b by conjugate gradients, and the number of steps.

    A solution stops at a direction without positive curvature. If this is its first direction, it is the solution.
    """
    x = np.zeros(right.shape)
    residual = right
    direction = scaled = preconditioner(residual)
    height = first = _dot(residual, scaled)
    steps = 0
    going = np.ones(first.shape, dtype=bool)
    # At most this number of steps.
    while steps < 500 and np.any(going):
        image = product(direction)
        bend = _dot(direction, image)
        if steps == 0:
            x = np.where(bend <= 0, direction, x)
        going = going & (bend > 0)
        step = np.divide(height, bend, out=np.zeros(bend.shape), where=going)
        x = x + step * direction
        residual = residual - step * image
        scaled = preconditioner(residual)
        height, before = _dot(residual, scaled), height
        going = going & (height > share**2 * first)
        direction = scaled + np.divide(height, before, out=np.zeros(before.shape), where=going) * direction
        steps += 1
    return x, steps


def _dot(a: Array, b: Array) -> Array:
    product: Array = np.sum(a * b, axis=-1, keepdims=True)
    return product
