"""Pictures are drawn without a window, and closed after each test."""

import matplotlib as mpl
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")
