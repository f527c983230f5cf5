"""What the library costs, as ratios and times of one run: `uv run tests/benchmarks/cost.py`."""

import subprocess
import sys
import time

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp


def best(f, repeats=15):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def imports(code):
    return best(lambda: subprocess.run([sys.executable, "-c", code], check=True), repeats=5)


TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
with pm.Model() as model:
    p = pm.Dirichlet("p", a=np.ones(4))
    pm.Multinomial("x", n=592, p=p, observed=[108, 286, 71, 127])

print(f"sample, 4 categories            {1e3 * best(lambda: dirdp.sample(TARGET, model)):8.1f} ms  (goal 50)")
for strategy, target in (("temper", TARGET), ("inflate", TARGET), ("algorithm-1", dirdp.RenyiDP(order=8, epsilon=0.5))):
    cost = best(lambda strategy=strategy, target=target: dirdp.calibrate(target, prior=np.ones(4), strategy=strategy))
    print(f"calibrate, {strategy:<20} {1e3 * cost:8.1f} ms  (goal 10)")

rng = np.random.default_rng()
counts = rng.integers(0, 50, 10**6)
mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(10**6), 0.3)
fill = best(lambda: rng.standard_gamma(0.3 * counts + 1.0))
drawn = best(lambda: mechanism.sample(counts, sampler="fast"))
print(f"draw of 1e6 over gamma fill     {drawn / fill:8.2f}     (goal 1.5)")
alone = imports("import pymc")
print(f"import beyond pymc's            {1e3 * (imports('import pymc, pymc_dirdp') - alone):8.0f} ms  (goal 150)")
print(
    f"and with the model verbs        {1e3 * (imports('import pymc, pymc_dirdp; pymc_dirdp.sample') - alone):8.0f} ms"
)
