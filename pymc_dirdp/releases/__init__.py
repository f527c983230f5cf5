"""From a model and a guarantee to a release that is safe to publish, and to its report."""
