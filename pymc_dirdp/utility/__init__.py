"""How far what comes out is expected to be from what went in."""
