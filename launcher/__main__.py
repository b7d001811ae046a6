"""``python -m neuron_dist.launcher`` is ``neuronrun``."""

import sys

from neuron_dist.launcher.run import main

if __name__ == "__main__":
    sys.exit(main())
