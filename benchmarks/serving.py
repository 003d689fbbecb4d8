"""Load test of the server on the loopback interface: requests a second and latency by number of clients.

    python -m benchmarks.serving                         # the analytical model, which needs no training
    python -m benchmarks.serving --model models:/costbench-tile-laptop@champion

The server is a process of its own. Each client sends the next request when it has the answer to the last: one
kernel (a matrix product with tanh) with a number of tile sizes. A second of requests warms the server up. The
last column is the server's processor time, which other programs on the machine change little.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import uvicorn

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.experiments.tracking.registry import example, registered_model
from costbench.experiments.tracking.runs import tracking_uri
from costbench.rng import stream
from costbench.serving.requests import RequestLimits
from costbench.serving.server import create_app
from costbench.serving.service import CostService, load_service, read_kernel
from costbench.target import load_target

CLIENTS = (1, 4, 16)
_HEADERS = {"Content-Type": "application/json"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each number of clients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="", help="registered model of the task tile (the analytical model)"
    )
    parser.add_argument("--tiles", type=int, default=100, help="tile sizes in a request (100)")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration with each number of clients (5)")
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENTS, help="numbers of clients (1 4 16)")
    options = parser.parse_args(arguments)
    body = request_body(options.tiles)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        server = multiprocessing.get_context("fork").Process(
            target=_serve, args=(listener, options.model), daemon=True
        )
        server.start()
    try:
        _run_clients(port, body, 1, 1.0)
        model = options.model or "analytical model"
        print(f"{model}, {options.tiles} tile sizes, {len(body):,} bytes a request")
        print("clients  requests/s  tiles/s    p50 ms    p90 ms    p99 ms  CPU ms/request")
        for number in options.clients:
            before = _cpu_seconds(server.pid)
            latencies, seconds = _run_clients(port, body, number, options.seconds)
            rate = len(latencies) / seconds
            cpu_ms = 1e3 * (_cpu_seconds(server.pid) - before) / len(latencies)
            p50, p90, p99 = 1e3 * np.percentile(latencies, (50, 90, 99))
            rates = f"{number:7}{rate:12.1f}{rate * options.tiles:9,.0f}"
            print(f"{rates}{p50:10.1f}{p90:10.1f}{p99:10.1f}{cpu_ms:16.1f}")
    finally:
        server.terminate()
        server.join()


def request_body(num_tiles: int) -> bytes:
    """Returns a request with tile sizes drawn from those of the kernel."""
    kernel = str(example("tile")["kernel"][0])
    space = tile_space(read_kernel(kernel, "example"), load_target("tpu_v2").architecture)
    ids = space.legal_ids()
    tiles: TileSizes = space.decode(ids[stream(0, "load test").integers(len(ids), size=num_tiles)])
    bounds = zip(tiles.output_bounds.tolist(), tiles.kernel_bounds.tolist(), strict=True)
    record = {"kernel": kernel, "tiles": [{"output_bounds": o, "kernel_bounds": k} for o, k in bounds]}
    return json.dumps({"instances": [record]}).encode()


def _serve(listener: socket.socket, model: str) -> None:
    limits = RequestLimits()
    if model:
        service = load_service(*registered_model(tracking_uri(), model), limits)
    else:
        service = CostService(AnalyticalModel(load_target("tpu_v2").architecture), "tile", "tpu_v2", limits)
    config = uvicorn.Config(create_app(service, limits), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def _run_clients(port: int, body: bytes, number: int, seconds: float) -> tuple[list[float], float]:
    """Returns the latencies of all requests in seconds, and the time until the last answer."""
    latencies: list[list[float]] = [[] for _ in range(number)]
    start = time.perf_counter()
    clients = [
        threading.Thread(target=_ask, args=(port, body, start + seconds, latencies[client]))
        for client in range(number)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return [
        latency for client_latencies in latencies for latency in client_latencies
    ], time.perf_counter() - start


def _cpu_seconds(pid: int | None) -> float:
    """Returns the processor time of a process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ask(port: int, body: bytes, end: float, latencies: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not latencies or time.perf_counter() < end:
        before = time.perf_counter()
        connection.request("POST", "/invocations", body, _HEADERS)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {text.decode()}")
        latencies.append(time.perf_counter() - before)
    connection.close()


if __name__ == "__main__":
    main()
