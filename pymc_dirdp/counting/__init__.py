"""From records of any engine to counts over a declared domain."""
