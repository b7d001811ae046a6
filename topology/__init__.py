"""What the hardware is: chips, cores, links, presets, routing, faults. Pure Python and NumPy, no torch."""
