"""Pictures. Every function takes axes, or makes them, and returns them; colours survive a black-and-white print."""
