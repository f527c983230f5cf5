"""The format of every text that the library writes and reads."""
