"""What can be done from a command line, for those who write no Python. Nothing heavy is imported at first."""
