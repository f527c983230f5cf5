"""One mechanism a file. Public numbers in fields, counts only as arguments of a call."""
