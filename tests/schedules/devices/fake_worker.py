"""A worker without a compiler: its answer follows from the row that it is asked about.

The last knob but one decides: its first choice runs, the others fail in ways of their own. Called with
`--kinds A,B,C,D` before the other arguments, the knob before it decides, and its choices are these.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

HOST = {
    "processor": "fake",
    "architecture": "none",
    "mcpu": "none",
    "features": ["f"],
    "versions": {"tvm": "0"},
}
KINDS = ("ran", "build", "hang", "crash")
Say = Callable[[dict[str, object]], None]


def main(descriptor: int, index: int, kinds: tuple[str, ...]) -> None:
    with os.fdopen(descriptor, "w") as out:

        def say(message: dict[str, object]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        say({"host": HOST})
        for line in sys.stdin:
            request = json.loads(line)
            do = request.get("do", "measure")
            if do == "target":
                known = request["target"] in ("native", "generic")
                say({"known": True} if known else {"failed": "unknown processor", "expected": "native"})
            elif do == "show":
                say({"trace": [request["row"]], "code": f"# {request['operator']}"})
            else:
                measure(say, request["row"], kinds[request["row"][index]])


def measure(say: Say, row: list[int], kind: str) -> None:
    if kind == "hang":
        time.sleep(60)
    if kind == "build":
        say({"failed": "build error: no"})
        return
    say({"phase": "built"})
    if kind == "wrong":
        say({"failed": "wrong output: relative error 1"})
        return
    if kind == "crash":
        sys.stderr.write("about to fall over\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    runtime = 1000.0 + sum(index * 7**at % 1009 for at, index in enumerate(row))
    spread, clean = (1.5, 0) if kind == "noisy" else (1.25, 5)
    timing = {"runtime_ns": runtime, "median_ns": runtime * spread, "clean": clean, "blocks": 5}
    say({"timing": timing | {"runs": 9, "total_ns": 2_000_000}, "build_ns": 1_000_000, "error": 0.0})


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[0] == "--kinds":
        main(int(arguments[2]), -3, tuple(arguments[1].split(",")))
    else:
        main(int(arguments[0]), -2, KINDS)
