"""No published epsilon, delta or rho is below the true one, at 20,000 random points and with 50 digits.

The references are formulas of their own: Gamma functions, incomplete Beta integrals, sums of integers, and the lemmas
of the papers, by mpmath and by Python's integers. Nothing of the library is in them. A published number may be above
the true one by the stated factor, which is the price of rounding, or of a bound that is not exact.
"""

import functools
import itertools
import math
import re
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from mpmath import mpf

import pymc_dirdp as dirdp
from pymc_dirdp import mechanisms, papers, privacy
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian
from pymc_dirdp.privacy.bounded_loss import BoundedRange, ErasedResponse, RandomisedResponse
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import Bounded, worst_curves
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.gaussian_loss import GaussianLoss
from pymc_dirdp.privacy.odds import Odds

# A family yields points: what each is about, the published number, the true one or one below it, and the factor
# between them at most.

EXACT, TINY = 1 + 1e-9, mpf("1e-200")


def between(rng, low, high):
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def exact(fraction):
    return mpf(fraction.numerator) / fraction.denominator


def order_of(rng, *, most=1e4):
    """1, or an order whose distance from 1 is anything from 1e-12 on."""
    return 1.0 if rng.random() < 0.05 else 1 + between(rng, 1e-12, most)


# Rényi divergences of Gamma variables, and their hockey sticks.


def gamma_renyi(order, a, b):
    if order == 1:
        return mp.loggamma(b) - mp.loggamma(a) + (a - b) * mp.psi(0, a)
    mixed = order * a + (1 - order) * b
    if mixed <= 0:
        return mp.inf
    return (mp.loggamma(mixed) - order * mp.loggamma(a) - (1 - order) * mp.loggamma(b)) / (order - 1)


def pair_renyi(order, loses, gains, r):
    loses, gains = sorted((loses, gains)) if math.isfinite(loses + gains) else (loses, gains)
    numbers = [x for x in (loses, gains, r, order - 1 or 1.0) if math.isfinite(x)]
    with mp.workdps(70 + int(2 * sum(abs(math.log10(x)) for x in numbers))):
        order, loses, gains, r = map(mpf, (order, loses, gains, r))
        losing = gamma_renyi(order, loses, loses + r) if mp.isfinite(loses) else mpf(0)
        return losing + (gamma_renyi(order, gains + r, gains) if mp.isfinite(gains) else mpf(0))


def pair(rng, *, wide):
    """Any pair: a record moves, disappears or appears."""
    low, high = (1e-8, 1e8) if wide else (1e-2, 300)
    loses, gains, r = between(rng, low, high), between(rng, low, high), between(rng, low, high / 10)
    way = rng.integers(4)
    return (loses, math.inf, r) if way == 0 else (math.inf, gains, r) if way == 1 else (loses, gains, r)


def renyi_of_pairs(rng):
    loses, gains, r = pair(rng, wide=True)
    order = order_of(rng)
    if rng.random() < 0.3 and math.isfinite(loses):
        order = 1 + min(loses, gains) / r * (1 - between(rng, 1e-14, 0.5))
    published = DominatingPair(loses, gains, r).renyi(max(order, 1.0))
    yield f"pair {loses, gains, r}, order {order!r}", published, pair_renyi(max(order, 1.0), loses, gains, r), EXACT


def rho_of_pairs(rng):
    loses, gains, r = pair(rng, wide=True)
    omega = 1 + between(rng, 1e-9, 1e3)
    values = [pair_renyi(order, loses, gains, r) / mpf(order) for order in (1.0, omega)]
    yield f"pair {loses, gains, r}, omega {omega}", DominatingPair(loses, gains, r).rho(omega), max(values), EXACT


def beta_lower(a, b, x):
    """The regularised incomplete Beta function, by a series of positive terms."""
    if x > 0.9:
        return 1 - beta_lower(b, a, 1 - x)
    series = mp.hyp2f1(a + b, 1, a + 1, x)
    return mp.exp(a * mp.log(x) + b * mp.log1p(-x) - mp.log(a)) / mp.beta(a, b) * series


def gamma_lower(a, x):
    return mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * mp.hyp1f1(1, a + 1, x)


def gamma_upper(a, x):
    return 1 - gamma_lower(a, x) if x < a + 30 else mp.gammainc(a, x, regularized=True)


def pair_delta(epsilon, loses, gains, r):
    """The probability of a loss above epsilon, and exp(epsilon) times that given the other data set."""
    loses, gains = sorted((loses, gains)) if math.isfinite(loses + gains) else (loses, gains)
    with mp.workdps(90):
        epsilon, loses, gains, r = map(mpf, (epsilon, loses, gains, r))
        rise = mp.loggamma(loses + r) - mp.loggamma(loses) if mp.isfinite(loses) else mpf(0)
        fall = mp.loggamma(gains + r) - mp.loggamma(gains) if mp.isfinite(gains) else mpf(0)
        if mp.isinf(gains):
            at = mp.exp((rise - epsilon) / r)
            return gamma_lower(loses, at) - mp.exp(epsilon) * gamma_lower(loses + r, at)
        if mp.isinf(loses):
            at = mp.exp((fall + epsilon) / r)
            return gamma_upper(gains + r, at) - mp.exp(epsilon) * gamma_upper(gains, at) if at < 1e4 else mpf(0)
        above = 1 / (1 + mp.exp((epsilon + fall - rise) / r))
        return beta_lower(loses, gains + r, above) - mp.exp(epsilon) * beta_lower(loses + r, gains, above)


def deltas_of_pairs(rng):
    loses, gains, r = pair(rng, wide=False)
    curves = DominatingPair(loses, gains, r)
    scale = math.sqrt(2 * curves.renyi(1))
    if loses == math.inf and scale > 5:
        return
    for epsilon in (0.0, 1e-12, scale * between(rng, 1e-3, 30), scale * between(rng, 1, 30)):
        if (true := pair_delta(epsilon, loses, gains, r)) > mpf("1e-60"):
            yield f"pair {loses, gains, r}, epsilon {epsilon}", curves.delta(epsilon), true, 1 + 1e-7
    delta = between(rng, 1e-30, 0.1)
    epsilon = curves.epsilon(delta)
    true_delta = functools.partial(pair_delta, loses=loses, gains=gains, r=r)
    yield from of_epsilon(f"pair {loses, gains, r}", epsilon, delta, true_delta)


def of_epsilon(name, epsilon, delta, true_delta, share=1e-6):
    """A published epsilon is high enough if the true delta at it is at most the one that was asked for."""
    if 0 < epsilon < math.inf:
        yield f"{name}, epsilon {epsilon} at {delta}", delta, true_delta(epsilon), math.inf
        yield f"{name}, less than {epsilon} at {delta}", float(true_delta(epsilon * (1 - share))), mpf(delta), math.inf


# Bounded losses: two answers, three with an erased one, chains of steps, and bounded range.


def answers_renyi(order, u, n=1, truth=None):
    """Of n answers with the loss u, -u, or 0 if they may be erased."""
    with mp.workdps(80):
        order, u = mpf(order), mpf(u)
        true = mpf(truth) if truth else 1 / (1 + mp.exp(-u))
        false = true * mp.exp(-u)
        if order == 1:
            return n * (true - false) * u
        terms = true * mp.expm1((order - 1) * u) + false * mp.expm1((1 - order) * u)
        return n * mp.log1p(terms) / (order - 1)


def answers_delta(epsilon, u, n, truth=None):
    with mp.workdps(70):
        epsilon, u = mpf(epsilon), mpf(u)
        true = mpf(truth) if truth else 1 / (1 + mp.exp(-u))
        if not truth:
            return binomial_delta(epsilon, u, n, true)
        false, erased = true * mp.exp(-u), 1 - true * (1 + mp.exp(-u))
        total = mpf(0)
        for i in range(n + 1):
            for j in range(n + 1 - i):
                if (excess := (i - j) * u - epsilon) > 0:
                    ways = math.comb(n, i) * math.comb(n - i, j)
                    total -= ways * true**i * false**j * erased ** (n - i - j) * mp.expm1(-excess)
        return total


def binomial_delta(epsilon, u, n, true):
    with mp.workdps(90):
        total, mass, ratio = mpf(0), true**n, mp.exp(-u)
        left, growth = mp.exp(epsilon - n * u), mp.exp(2 * u)
        for i in range(n + 1):
            if (n - 2 * i) * u <= epsilon:
                break
            total += mass * (1 - left)
            mass *= ratio * (n - i) / (i + 1)
            left *= growth
        return total


def answers(rng):
    u, n = between(rng, 1e-12, 50), int(between(rng, 1, 40))
    curves, order = RandomisedResponse(u, n), order_of(rng, most=1e15)
    yield f"{curves}, order {order}", curves.renyi(order), answers_renyi(order, u, n), 1 + 1e-13
    yield f"{curves}, rho", curves.rho(order + 1e-9), answers_renyi(1, u, n), 1 + 1e-13
    # Next to the largest loss a last digit of epsilon is a large part of delta.
    for share, factor in ((0.0, 1 + 1e-11), (rng.random(), 1 + 1e-9), (1 - between(rng, 1e-15, 1e-3), math.inf)):
        true = answers_delta(n * u * share, u, n)
        yield f"{curves}, epsilon {n * u * share}", curves.delta(n * u * share), true, factor
    delta = between(rng, 1e-300, 0.1)
    yield from of_epsilon(f"{curves}", curves.epsilon(delta), delta, functools.partial(answers_delta, u=u, n=n), 1e-9)


def many_answers(rng):
    """Thousands of compositions, on the grid of a privacy loss distribution and in closed form."""
    n = int(between(rng, 50, 3000))
    u = between(rng, 1e-3, 3) / math.sqrt(n)
    epsilon = math.sqrt(n) * u * rng.uniform(0, 8)
    true = answers_delta(epsilon, u, n)
    yield f"{n} answers, {u}, {epsilon}", RandomisedResponse(u, n).delta(epsilon), true, 1 + 1e-8
    composed = Composition(((RandomisedResponse(u), n),))
    # A grid ends where a delta is below 1e-22.
    factor = 1.1 if true > mpf("1e-17") else math.inf
    yield f"{n} composed answers, {u}, {epsilon}", composed.delta(epsilon), true, factor
    delta = between(rng, 1e-12, 0.1)
    true_delta = functools.partial(answers_delta, u=u, n=n)
    yield from of_epsilon(f"composed {u}", composed.epsilon(delta), delta, true_delta, 0.05)
    leak = between(rng, 1e-12, 1e-4)
    leaks = Composition(((Bounded(u, leak), n),))
    survival = (1 - mpf(leak)) ** n
    yield f"{n} of {u, leak}", leaks.delta(epsilon), 1 - survival + survival * true, 1.1
    yield f"{n} of {u, leak}, pure", composed.pure_epsilon, n * mpf(u), 1 + 1e-15


def chain_delta(epsilon, u, truth, steps):
    """Of a chain of steps: the largest power of a test less exp(epsilon) times its level, at a kink of the power."""
    with mp.workdps(60):
        epsilon, u, truth = mpf(epsilon), mpf(u), mpf(truth)
        factor, gain = mp.exp(u), truth * -mp.expm1(-u)
        kinks = [gain / (factor - 1), 1 - gain / (1 - 1 / factor)]
        kinks[1] = max(kinks)

        def power(level):
            return min(factor * level, level + gain, 1 - (1 - level) / factor)

        def inverse(level):
            return max(level / factor, level - gain, 1 - (1 - level) * factor)

        levels, traced = list(kinks), list(kinks)
        for _ in range(steps - 1):
            traced = [inverse(level) for level in traced]
            levels += traced
        best = mpf(0)
        for level in levels:
            reached = level
            for _ in range(steps):
                reached = power(reached)
            best = max(best, reached - mp.exp(epsilon) * level)
        return best


def erased_answers(rng):
    u = between(rng, 1e-10, 30)
    truth = between(rng, 1e-6, 1) / (1 + math.exp(-u)) * (1 - 1e-15)
    curves, order = ErasedResponse(u, truth), order_of(rng)
    yield f"{curves}, order {order}", curves.renyi(order), answers_renyi(order, u, 1, truth), 1 + 1e-10
    orders = [1.0, *(1 + between(rng, 1e-6, order) for _ in range(20))]
    sup = max(answers_renyi(one, u, 1, truth) / mpf(one) for one in orders if one <= order or one == 1.0)
    yield f"{curves}, omega {order}", curves.rho(max(order, 1 + 1e-12)), sup, math.inf
    for epsilon in (0.0, u * rng.random()):
        yield f"{curves}, epsilon {epsilon}", curves.delta(epsilon), answers_delta(epsilon, u, 1, truth), 1 + 1e-12
    n = int(rng.integers(2, 7))
    blocks, epsilon = ErasedResponse(u, truth, 1, n), n * u * rng.random()
    yield f"{blocks}, epsilon {epsilon}", blocks.delta(epsilon), answers_delta(epsilon, u, n, truth), 1 + 1e-10
    steps, u = int(rng.integers(2, 9)), min(u, 5.0)
    truth = min(truth, 1 / (1 + math.exp(-u)) * (1 - 1e-15))
    chain, epsilon = ErasedResponse(u, truth, steps), steps * u * rng.random()
    yield f"{chain}, epsilon {epsilon}", chain.delta(epsilon), chain_delta(epsilon, u, truth, steps), math.inf


def range_renyi(order, u):
    """The largest over the largest loss t, whose exponential is the maximum of a quadratic or of a like power."""
    with mp.workdps(80):
        order, u = mpf(order), mpf(u)
        if order == 1:
            t = mp.log(mp.expm1(u) / u)
            p = (mp.exp(u) - mp.exp(t)) / mp.expm1(u)
            return t - u * (1 - p)
        tilt = order - 1
        rest = mp.exp(-tilt * u)
        b = (1 - rest) / mp.expm1(u)
        c = rest + b * mp.exp(u)
        t = mp.log(tilt * c / (order * b))
        return t + mp.log(c - b * mp.exp(t)) / tilt


def ranges(rng):
    u, order = between(rng, 1e-9, 100), order_of(rng)
    curves, low = BoundedRange(u), u < 1e-3 or order < 1 + 1e-3
    yield f"{curves}, order {order}", curves.renyi(order), range_renyi(order, u), 1.2 if low else 1 + 1e-6
    sup = max(range_renyi(one, u) / mpf(one) for one in (1.0, *np.linspace(1.001, max(order, 1.002), 5).tolist()))
    yield f"{curves}, omega {order}", curves.rho(max(order, 1.002)), sup, 1.2
    for epsilon in (0.0, u * rng.random()):
        with mp.workdps(60):
            true = mp.expm1((mpf(epsilon) - mpf(u)) / 2) ** 2 / -mp.expm1(-mpf(u))
        yield f"{curves}, epsilon {epsilon}", curves.delta(epsilon), true, 1 + 1e-13


# Discrete Gaussian noise: integers of 900 binary digits, convolved as the digits of a larger integer.


@functools.lru_cache(maxsize=4)
def gaussian_masses(variance, cells, digits=900):
    """The probabilities of the sum of the noise of some cells, from the least sum on, with an error of 2**-digits."""
    with mp.workprec(digits + 60):
        s = mpf(variance)
        reach = int(math.sqrt(2 * variance * digits * math.log(2))) + 2
        weights = [mp.exp(-(k * k) / (2 * s)) for k in range(-reach, reach + 1)]
        total = mp.fsum(weights)
        masses = [int(mp.ldexp(weight / total, digits)) for weight in weights]
    slot = cells * (digits + 12)
    packed = sum(mass << (slot * i) for i, mass in enumerate(masses)) ** cells
    mask, size = (1 << slot) - 1, cells * 2 * reach + 1
    with mp.workdps(90):
        return -cells * reach, [mp.ldexp(mpf(packed >> (slot * i) & mask), -cells * digits) for i in range(size)]


def gaussian_delta(epsilon, variance, cells, records):
    with mp.workdps(90):
        epsilon, slope = mpf(epsilon), records / mpf(variance)
        least, masses = gaussian_masses(variance, cells)
        at = epsilon / slope - mpf(cells) * records / 2
        first = max(int(mp.floor(at)) + 1, least)
        total, left, ratio = mpf(0), mp.exp(-slope * (first - at)), mp.exp(-slope)
        for mass in masses[first - least :]:
            total += mass * (1 - left)
            left *= ratio
        return total


def gaussian_renyi(order, variance, cells, records):
    with mp.workdps(90):
        x, s = mpf(order) * records, mpf(variance)
        q = mp.exp(-2 * mp.pi**2 * s)
        if variance > 0.05:
            reduction = mp.log(mp.jtheta(3, mp.pi * x, q) / mp.jtheta(3, 0, q))
        else:
            x -= mp.nint(x)
            # The sum over integers near 0.
            terms = [mp.exp(-((k - x) ** 2) / (2 * s)) for k in range(-9, 10)]
            reduction = mp.log(mp.fsum(terms) / mp.fsum(mp.exp(-(mpf(k) ** 2) / (2 * s)) for k in range(-9, 10)))
        whole = cells * mpf(order) * records**2 / (2 * s)
        return whole if order == 1 else whole + cells * reduction / (mpf(order) - 1)


def gaussian_divergences(rng):
    variance, cells, records = between(rng, 1e-3, 1e12), int(between(rng, 1, 100)), int(between(rng, 0.5, 4) + 0.5)
    curves, order = GaussianLoss(Fraction(variance), cells, records), order_of(rng)
    true = gaussian_renyi(order, variance, cells, records)
    yield f"{curves}, order {order}", curves.renyi(order), true, EXACT if records == 1 else math.inf
    yield f"{curves}, rho", curves.rho(order + 1e-6), cells * mpf(records) ** 2 / (2 * mpf(variance)), 1 + 1e-15


def gaussian_deltas(rng):
    cells, records = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 5]))
    variance = between(rng, 0.02, 30 / cells)
    curves = GaussianLoss(Fraction(variance), cells, records)
    true_delta = functools.partial(gaussian_delta, variance=variance, cells=cells, records=records)
    deviations = math.sqrt(cells / variance) * records
    for epsilon in (0.0, *(deviations * (deviations / 2 + rng.uniform(-2, 25, 12))).tolist()):
        if epsilon >= 0 and (true := true_delta(epsilon)) > TINY:
            yield (f"{curves}, epsilon {epsilon}", curves.delta(epsilon), true, 1 + 1e-6 if records == 1 else math.inf)
    delta = between(rng, 1e-150, 0.1)
    yield from of_epsilon(f"{curves}", curves.epsilon(delta), delta, true_delta, 1e-5 if records == 1 else 1.0)


# What one guarantee implies about another, what a report says of it, and what a ledger adds up.


def epsilon_of(order, divergence, delta):
    order = mpf(order)
    return max(mpf(0), divergence + mp.log1p(-1 / order) - (mp.log(delta) + mp.log(order)) / (order - 1))


def at_root(slope):
    """The order at which a slope that rises with it is 0, by bisection in the logarithm of its distance from 1."""
    low, high = mpf(-70), mpf(80)
    if slope(1 + mp.exp(low)) > 0:
        return 1 + mp.exp(low)
    with mp.workdps(15):
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(1 + mp.exp(middle)) < 0 else (low, middle)
    return 1 + mp.exp(mp.findroot(lambda x: slope(1 + mp.exp(x)), (low, high), verify=False))


def zcdp_epsilon(rho, delta):
    order = at_root(lambda order: rho * (order - 1) ** 2 + mp.log(delta) + mp.log(order))
    return epsilon_of(order, order * rho, delta)


def renyi_epsilon(divergence, order, delta):
    """The same up to an order, for one bound at all of them: it falls up to the order 1 / delta."""
    return epsilon_of(min(order, 1 / delta), divergence, delta)


def zcdp_delta(rho, epsilon):
    order = at_root(lambda order: (2 * order - 1) * rho - epsilon + mp.log1p(-1 / order))
    return min(mp.exp((order - 1) * (order * rho - epsilon + mp.log1p(-1 / order)) - mp.log(order)), mpf(1))


def conversions(rng):
    budget, order, delta = between(rng, 1e-12, 1e4), 1 + between(rng, 1e-12, 1e4), between(rng, 1e-300, 0.5)
    exact_budget, limit, epsilon = mpf(budget), mpf(delta), between(rng, 1e-6, 100)
    implied = privacy.convert(dirdp.RenyiDP(order=order, epsilon=budget), dirdp.ApproxDP, delta=delta)
    best = renyi_epsilon(exact_budget, mpf(order), limit)
    yield f"({order}, {budget}) at {delta}", implied.epsilon, best, 1 + 1e-6
    zcdp, pure = dirdp.ZeroCDP(rho=budget), dirdp.PureDP(epsilon=budget)
    implied = privacy.convert(zcdp, dirdp.ApproxDP, delta=delta)
    yield f"zCDP {budget} at {delta}", implied.epsilon, zcdp_epsilon(exact_budget, limit), 1 + 1e-6
    true = zcdp_delta(exact_budget, epsilon)
    yield f"zCDP {budget} at epsilon {epsilon}", worst_curves(zcdp).delta(epsilon), true, 1 + 1e-5
    yield f"pure {budget} as rho", privacy.convert(pure, dirdp.ZeroCDP).rho, exact_budget**2 / 2, 1 + 1e-15
    at_order = privacy.convert(pure, dirdp.RenyiDP, order=order).epsilon
    true = min(exact_budget, mpf(order) * exact_budget**2 / 2)
    yield f"pure {budget} at order {order}", at_order, true, 1 + 1e-15
    yield f"pure {budget} at order {order}, exactly", at_order, answers_renyi(order, budget, 1), math.inf


def odds(rng):
    budget, delta = between(rng, 1e-3, 30), between(rng, 1e-12, 1e-3)
    pure, factor = Odds.of_guarantee(dirdp.PureDP(epsilon=budget), "it"), mp.exp(mpf(budget))
    yield f"odds of {budget}", float(re.match(r"[\d.e+]+", str(pure))[0]), factor, 1.01
    (percent,) = re.findall(r"becomes (?:([\d.]+) %|1 - \S+) at most", pure.paragraph("X", ""))
    if percent:
        yield f"an even chance and {budget}", float(percent), 100 * factor / (1 + factor), 1.01
    rho = budget**2 / 20
    curves = worst_curves(dirdp.ZeroCDP(rho=rho))
    parts = [mpf(part * delta) for part in (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01)]
    true = min(zcdp_epsilon(mpf(rho), part) - mp.log1p(-part / mpf(delta)) for part in parts)
    yield f"odds of rho {rho} at {delta}", Odds(curves, delta, "it").log_factor, true, 1 + 1e-6


def texts(rng):
    budget, other = between(rng, 1e-300, 1e300), between(rng, 1e-12, 0.99)
    order = 1 + 1 / other
    # The numbers as they are printed, and which of them is an order, which is rounded down.
    cases = (
        (dirdp.PureDP(epsilon=budget), (budget,), None),
        (dirdp.ZeroCDP(rho=budget), (budget,), None),
        (dirdp.ApproxDP(epsilon=budget, delta=other), (budget, other), None),
        (dirdp.RenyiDP(order=order, epsilon=budget), (order, budget), 0),
        (dirdp.TruncatedCDP(rho=budget, omega=order), (budget, order), 1),
    )
    for guarantee, numbers, at_order in cases:
        said = map(mpf, re.findall(r"\d[\d.]*(?:e[+-]?\d+)?", str(guarantee)))
        for i, (printed, exact) in enumerate(zip(said, map(mpf, numbers), strict=True)):
            published, true = (exact, printed) if i == at_order else (printed, exact)
            yield f"{guarantee!r} as {guarantee}", published, true, 1 + 2e-5


def ledgers(rng):
    costs = [between(rng, 1e-4, 0.01) for _ in range(int(rng.integers(2, 12)))]
    total = exact(sum(map(Fraction, map(repr, costs))))
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0))
    for cost in costs:
        ledger.spend(dirdp.PureDP(epsilon=cost), what="x", unit="record")
    # In a ledger 0.1 is a tenth: its numbers are decimal ones.
    said = mpf(repr(ledger._store.balance.joint_guarantee.epsilon))
    yield f"pure ledger of {costs}", said, total, 1 + 1e-15
    left = ledger.remaining()
    yield f"what is left of {costs}", float(1 - total), mpf(left.epsilon), 1.01
    said = float(re.search(r"([\d.e-]+) of", ledger._store.balance.amounts[0].state)[1])
    yield f"what a ledger says of {costs}", said, total, 1 + 1e-5
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5.0, delta=1e-6), adaptive=False)
    for cost in costs[:4]:
        ledger.spend(dirdp.ZeroCDP(rho=cost), what="x", unit="record")
    spent = float(ledger._store.balance._amounts_by_rule["best order"][0].spent)
    best = zcdp_epsilon(sum(mpf(cost) for cost in costs[:4]), mpf(1e-6))
    yield f"best order of {costs[:4]}", spent, best, 1.1


# Mechanisms, and what calibration returns.


def zero_sum_truth(scale, cells):
    """The probability that a record is exposed by noise that adds up to 0, from Legendre polynomials."""
    with mp.workdps(50):
        u = 2 / mpf(scale)
        x = mp.coth(u / 2)
        return 1 / (-mp.expm1(-u) * mp.legendre(cells - 1, x) / mp.legendre(cells - 2, x))


def of_mechanisms(rng):
    """Each with its smallest facts: curves of the parameters that it shows."""
    d, m = int(rng.integers(2, 6)), int(rng.choice([1, 2, 3]))
    adjacency = str(rng.choice(["replace-one", "add-remove"]))
    changes = 2 if adjacency == "replace-one" else 1
    facts = {"adjacency": adjacency, "contribution": m}
    scale = between(rng, 0.1, 100)
    geometric = mechanisms.GeometricMechanism(np.ones(d), scale, **facts)
    loss = exact(m / Fraction(geometric.scale))
    name, order, epsilon = repr(geometric), order_of(rng, most=100), float(loss) * changes * rng.random()
    yield f"{name}, pure", geometric.pure_epsilon, changes * loss, 1 + 1e-15
    yield f"{name}, order {order}", geometric.renyi(order), answers_renyi(order, loss, changes), 1 + 1e-12
    yield f"{name}, epsilon {epsilon}", geometric.delta(epsilon), answers_delta(epsilon, loss, changes), 1 + 1e-12
    gaussian = mechanisms.DiscreteGaussianMechanism(np.ones(d), between(rng, 0.3, 100), **facts)
    true = changes * mpf(m) ** 2 / (2 * exact(DiscreteGaussian(gaussian.sigma).variance))
    yield f"{gaussian!r}, rho", gaussian.rho(2.0), true, 1 + 1e-9
    alpha, r, low = rng.uniform(0.5, 9, d), between(rng, 1e-3, 1), int(rng.integers(0, 50))
    dirichlet = mechanisms.DirichletMechanism(alpha, r, min_count=low, **facts)
    with mp.workdps(60):
        first, second = (mpf(a) + mpf(r) * low for a in np.sort(alpha)[:2].tolist())
        gains = second if changes == 2 else math.inf
        order = float(1 + first / (m * mpf(r)) * mpf(1 - between(rng, 1e-14, 0.9)))
        true = pair_renyi(order, first, gains, m * mpf(r))
    yield f"{dirichlet!r}, order {order}", dirichlet.renyi(order), true, math.inf


def of_zero_sum(rng):
    scale, cells = between(rng, 0.2, 50), int(rng.integers(2, 9))
    mechanism = mechanisms.ZeroSumGeometricMechanism(np.ones(cells), scale)
    scale = mechanism.scale
    truth = zero_sum_truth(scale, cells)
    with mp.workdps(50):
        u = 2 / mpf(scale)
    order, epsilon = order_of(rng, most=100), float(u) * rng.random()
    yield f"{mechanism!r}, pure", mechanism.pure_epsilon, u, 1 + 1e-15
    yield f"{mechanism!r}, order {order}", mechanism.renyi(order), answers_renyi(order, u, 1, truth), 1 + 1e-6
    yield (f"{mechanism!r}, epsilon {epsilon}", mechanism.delta(epsilon), answers_delta(epsilon, u, 1, truth), 1 + 1e-9)


def of_calibration(rng):
    """The loss of what was calibrated, by the reference, is at most what was asked for."""
    prior, epsilon, delta, rho = np.ones(3), between(rng, 1e-2, 8), between(rng, 1e-12, 1e-3), between(rng, 1e-4, 2)
    order = 1 + between(rng, 1e-2, 50)
    geometric = mechanisms.GeometricMechanism.for_guarantee(dirdp.PureDP(epsilon=epsilon), prior=prior)
    yield f"geometric for {epsilon}", epsilon, 2 / mpf(geometric.scale), 1 + 1e-9
    geometric = mechanisms.GeometricMechanism.for_guarantee(dirdp.ApproxDP(epsilon=epsilon, delta=delta), prior=prior)
    true = answers_delta(epsilon, 1 / mpf(geometric.scale), 2)
    yield f"geometric for {epsilon, delta}", delta, true, math.inf
    gaussian = mechanisms.DiscreteGaussianMechanism.for_guarantee(dirdp.ZeroCDP(rho=rho), prior=prior)
    yield f"gaussian for {rho}", rho, 1 / exact(DiscreteGaussian(gaussian.sigma).variance), 1 + 1e-9
    for guarantee in (dirdp.RenyiDP(order=order, epsilon=epsilon), dirdp.ApproxDP(epsilon=epsilon, delta=delta)):
        dirichlet = dirdp.calibrate(guarantee, prior=prior, mechanism=dirdp.mechanisms.Dirichlet(strategy="temper"))
        if isinstance(guarantee, dirdp.RenyiDP):
            # Next to the pole of a divergence, a last digit of r is a large part of it.
            true = pair_renyi(order, 1.0, 1.0, dirichlet.r)
            yield f"Dirichlet for {guarantee!r}", epsilon, true, math.inf
        else:
            yield f"Dirichlet for {guarantee!r}", delta, pair_delta(epsilon, 1.0, 1.0, dirichlet.r), 1 + 1e-6


def of_papers(rng):
    alpha, r, order = between(rng, 0.01, 100), between(rng, 1e-3, 10), 1 + between(rng, 1e-6, 30)
    squared, largest = between(rng, 0.1, 4), between(rng, 0.1, 2)
    known = {"r": r, "alpha_min": alpha, "delta_2_squared": squared, "delta_inf": largest}
    argument = mpf(alpha) - (mpf(order) - 1) * mpf(r) * mpf(largest)
    if argument > mpf(alpha) * mpf("1e-12"):
        true = mpf(order) / 2 * mpf(r) ** 2 * mpf(squared) * mp.psi(1, argument)
        yield (f"P1 Theorem 1, {order}, {known}", papers.p1_theorem_1(order=order, **known).epsilon, true, 1 + 1e-3)
        step = mpf(r) * min(mpf(largest), mp.sqrt(mpf(squared)))
        true = mpf(r) ** 2 * mpf(squared) / step**2 * gamma_renyi(mpf(order), mpf(alpha), mpf(alpha) + step)
        yield f"real values, {order}, {known}", papers.RealValuedLoss(**known).renyi(order), true, math.inf
    gamma = alpha * (1 - between(rng, 1e-12, 0.9))
    bound = papers.p2_theorem_1(gamma=gamma, **known)
    true = mpf(r) ** 2 * mpf(squared) * mp.psi(1, mpf(alpha) - mpf(gamma)) / 2
    yield f"P2 Theorem 1, {gamma}, {known}", bound.rho, true, 1 + 1e-3
    most = float(mpf(gamma) / (mpf(r) * mpf(largest)) + 1)
    yield f"P2 Theorem 1, omega, {gamma}, {known}", most, mpf(bound.omega), math.inf


FAMILIES = {
    "renyi of pairs": (renyi_of_pairs, 3000),
    "rho of pairs": (rho_of_pairs, 400),
    "deltas of pairs": (deltas_of_pairs, 1500),
    "answers": (answers, 3700),
    "many answers": (many_answers, 200),
    "erased answers": (erased_answers, 2100),
    "ranges": (ranges, 2600),
    "gaussian divergences": (gaussian_divergences, 1900),
    "gaussian deltas": (gaussian_deltas, 800),
    "conversions": (conversions, 1000),
    "odds": (odds, 300),
    "texts": (texts, 1500),
    "ledgers": (ledgers, 100),
    "mechanisms": (of_mechanisms, 500),
    "zero sum": (of_zero_sum, 300),
    "calibration": (of_calibration, 200),
    "papers": (of_papers, 400),
}


def compared(name, share, seed):
    """The points of a family at which the published number is too small, and those at which it is too large."""
    family, n = FAMILIES[name]
    wrong, far = [], []
    with mp.workdps(60):
        rng = np.random.default_rng(seed)
        points = itertools.chain.from_iterable(family(rng) for _ in itertools.count())
        for what, published, true, factor in itertools.islice(points, int(share * n)):
            # The reference has more than 50 digits. What is below the least double may become many of it.
            if not mpf(published) * (1 + mpf("1e-48")) >= true:
                wrong.append((what, published, mp.nstr(true, 20)))
            elif factor < math.inf and not published <= true * mpf(factor) + mpf("1e-304"):
                far.append((what, published, mp.nstr(true, 20)))
    return wrong, far


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAMILIES)
def test_no_published_number_is_below_the_true_one_at_20_000_points(name):
    assert compared(name, 1, 2) == ([], [])


def test_a_number_that_is_too_small_or_too_large_is_seen(monkeypatch):
    """Last digits of a rho, and a rho that nobody needs."""
    assert sum(n for _, n in FAMILIES.values()) > 20_000
    true_rho = DominatingPair.rho
    for factor, at in ((1 - 1e-14, 0), (1 + 1e-8, 1)):
        changed = factor / (1 + 3e-11)
        monkeypatch.setattr(DominatingPair, "rho", lambda self, omega, f=changed: f * true_rho(self, omega))
        assert compared("rho of pairs", 0.1, 1)[at]
