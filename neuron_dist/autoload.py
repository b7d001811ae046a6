"""Entry point `torch.backends`: runs at the end of `import torch` and brings the device and the backend."""


def autoload() -> None:
    """Register the device module and the backend. Never raises: an exception here would break `import torch`."""
