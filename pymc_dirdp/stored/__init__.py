"""A release as it is read from a file, which may be damaged or hostile. It needs NumPy and SciPy alone."""
