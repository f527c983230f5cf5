"""The command line, for releases without Python code. No slow module is imported at first."""
