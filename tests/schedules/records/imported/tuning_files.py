"""Files of Kernel Tuner and others that tests read: one small space with a restriction and a failure."""

from __future__ import annotations

import itertools
from typing import Any

VALUES: dict[str, list[Any]] = {"block": [16, 32, 64], "unroll": [1, 2], "padding": ["none", "full"]}


def cache_file() -> dict[str, Any]:
    """A file in Kernel Tuner's format: all but one configuration, one of them a failure."""
    cache = {}
    for block, unroll, padding in itertools.product(*VALUES.values()):
        if (block, unroll, padding) == (64, 2, "full"):
            continue
        time: float | str = block / 16 + unroll + len(padding) / 10
        entry: dict[str, Any] = {"block": block, "unroll": unroll, "padding": padding, "time": time}
        entry |= {"times": [9 * time, time, 1.5 * time, time, 1.5 * time], "compile_time": 200.0}
        if (block, unroll) == (64, 1) and padding == "none":
            entry["time"] = "RuntimeFailedConfig"
            del entry["times"]
        entry |= {"benchmark_time": 50.0, "verification_time": 0, "timestamp": "2024-01-01"}
        cache[f"{block},{unroll},{padding}"] = entry
    return {
        "schema_version": "1.1.0",
        "device_name": "A4000",
        "kernel_name": "convolution",
        "problem_size": [4096, 4096],
        "tune_params_keys": list(VALUES),
        "tune_params": VALUES,
        "objective": "time",
        "cache": cache,
    }


def t4_file() -> dict[str, Any]:
    """The same measurements in the T4 format."""
    results = []
    for entry in cache_file()["cache"].values():
        failed = isinstance(entry["time"], str)
        times = {"compilation": 200.0, "benchmark": 50.0, "runtimes": entry.get("times", [])}
        results.append(
            {
                "configuration": {name: entry[name] for name in VALUES},
                "times": times,
                "invalidity": "runtime" if failed else "correct",
                "correctness": 1,
                "measurements": [{"name": "time", "value": entry["time"], "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    return {"schema_version": "1.0.0", "results": results}
