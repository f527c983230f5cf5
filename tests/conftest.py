"""Settings of Hypothesis for every test."""

from hypothesis import HealthCheck, settings

# A busy machine is not a failure, and a test that fails for one person has to fail for everybody: no example has to end
# in 200 ms, and the examples are the same in every run. Tests that are run on demand can ask for others.
settings.register_profile("project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
