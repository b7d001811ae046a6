"""torch's DistributedTest on one backend: python -m tests.conformance.suite --world-size 3 --device neuron

Prints {test: [status, message]} as JSON, status one of pass, skip, fail. Torch's suite spawns a process for every
rank of every test and each imports torch; forking them instead takes a minute where that takes twenty.
"""

import argparse
import json
import os
import sys
import tempfile
import unittest
import warnings

TIMEOUT = 60  # seconds for each test
Results = dict[str, tuple[str, str]]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run torch's DistributedTest.")
    parser.add_argument("--backend", default="neuron")
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--device", help="torch's default device in every rank (default: cpu)")
    parser.add_argument("tests", nargs="*", help="names of tests; default: all")
    return parser.parse_args()


def run_suite(backend: str, world_size: int, device: str | None, names: list[str]) -> Results:
    # Decorators skip by the backend's name, when distributed_test is imported: judge us by what is asked of Gloo.
    os.environ.update(
        BACKEND="gloo", WORLD_SIZE=str(world_size), OMP_NUM_THREADS="1", TEMP_DIR=tempfile.mkdtemp()
    )
    import torch
    from torch.testing._internal import common_distributed as common

    common.TIMEOUT_DEFAULT = TIMEOUT
    common.TIMEOUT_OVERRIDE = {}
    from torch.testing._internal.distributed import distributed_test

    distributed_test.BACKEND = os.environ["BACKEND"] = backend

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank: int, *args: object, **kwargs: object) -> None:
            torch.set_num_threads(1)
            if device:
                torch.set_default_device(f"{device}:{rank}")
                torch.accelerator.set_device_index(rank)
            super()._run(rank, *args, **kwargs)

        def run_test(self, test_name: str, pipe: object) -> None:
            if (
                "accumulate_gradients_no_sync" in test_name
            ):  # builds its model only for backends that it knows
                distributed_test.BACKEND = "gloo"
            super().run_test(test_name, pipe)

    loader = unittest.TestLoader()
    tests = [Suite(name) for name in names] if names else loader.loadTestsFromTestCase(Suite)
    with open(os.devnull, "w") as nowhere:
        result = unittest.TextTestRunner(stream=nowhere, resultclass=Collected).run(unittest.TestSuite(tests))
    return result.results


class Collected(unittest.TextTestResult):
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.results: Results = {}

    def _note(self, test: unittest.TestCase, status: str, message: str = "") -> None:
        self.results[test.id().rpartition(".")[2]] = (status, message)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skip", reason)

    def addFailure(self, test: unittest.TestCase, error: tuple) -> None:
        self._note(test, "fail", self._exc_info_to_string(error, test))

    addError = addFailure


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    args = parse_args()
    output = sys.stdout
    sys.stdout = sys.stderr  # what the tests print
    json.dump(run_suite(args.backend, args.world_size, args.device, args.tests), output, indent=0)
