"""A worker without a compiler: its answer follows from the row that it is asked about.

The last knob but one decides: its first choice runs, the others fail in ways of their own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

HOST = {
    "processor": "fake",
    "architecture": "none",
    "mcpu": "none",
    "features": ["f"],
    "versions": {"tvm": "0"},
}


def main(descriptor: int) -> None:
    with os.fdopen(descriptor, "w") as out:

        def say(message: dict[str, object]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        say({"host": HOST})
        for line in sys.stdin:
            row = json.loads(line)["row"]
            what = ("ran", "build", "hang", "crash")[row[-2]]
            if what == "hang":
                time.sleep(60)
            if what == "build":
                say({"failed": "build error: no"})
                continue
            say({"phase": "built"})
            if what == "crash":
                sys.stderr.write("about to fall over\n")
                os.kill(os.getpid(), signal.SIGSEGV)
            runtime = 1000.0 + sum(index * 7**place % 1009 for place, index in enumerate(row))
            timing = {"runtime_ns": runtime, "median_ns": runtime * 1.25, "clean": 5, "blocks": 5}
            say({"timing": timing | {"runs": 9, "total_ns": 2_000_000}, "build_ns": 1_000_000, "error": 0.0})


if __name__ == "__main__":
    main(int(sys.argv[1]))
