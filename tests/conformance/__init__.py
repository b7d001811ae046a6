"""PyTorch's own suites, pointed at this backend."""
