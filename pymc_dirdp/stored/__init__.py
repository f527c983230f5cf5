"""A release as it is read from a file, which may be damaged or hostile. This room needs NumPy and SciPy alone."""
