"""The `neuronrun` launcher and the `neuron-dist` command."""
