"""The subcommands of ``neuron-dist``, one a file: what each takes (``add_arguments``) and does (``run``)."""
