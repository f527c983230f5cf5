"""The only rooms that know PyMC: which tables a model holds, what is planned for them, and their release."""
