"""What a PyMC model says: which tables it holds, whose records they are, which numbers are public."""
