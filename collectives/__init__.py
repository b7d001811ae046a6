"""What the algorithms are: schedules, verified, priced, chosen and drawn. Pure Python and NumPy, no torch."""
