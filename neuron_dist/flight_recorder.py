"""Dumps of torch's flight recorder, with what the fabric adds."""

import pickle
from typing import Any

from neuron_dist import _C


def flight_recorder_dump(with_stacks: bool = True) -> bytes:
    """What this process's groups did last, as ``torchfrtrace`` reads it: a pickled dict.

    Entries of planned collectives also have ``algorithm``, ``steps``, ``bytes``, ``link_bytes`` (by kind of link, of
    all ranks together), ``simulated_start_us`` and ``simulated_end_us``.
    """
    from neuron_dist.planner import link_bytes

    dump: dict[str, Any] = pickle.loads(_C.flight_dump(with_stacks))
    records = {record.flight_id: record for record in _C.records()}
    for entry in dump.get("entries", ()):
        record = records.get(entry["record_id"])
        if record is not None and record.algorithm:
            entry |= {"algorithm": record.algorithm, "steps": record.steps, "bytes": record.bytes}
            entry["link_bytes"] = link_bytes(record.group, record.op, record.algorithm, record.bytes)
            entry |= {"simulated_start_us": record.start * 1e6, "simulated_end_us": record.end * 1e6}
    return pickle.dumps(dump)
