"""A server of a model on a socket of this machine, and requests to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from costbench.serving.requests import RequestLimits
from costbench.serving.server import create_app
from costbench.serving.service import CostService
from tests.deadline import HANGS_AFTER_S


@contextmanager
def serving(service: CostService, limits: RequestLimits) -> Iterator[int]:
    """Yields the port on which the service answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(service, limits), log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(HANGS_AFTER_S)


def post(port: int, body: object, kind: str = "application/json") -> tuple[int, str]:
    """Returns status and text of the answer to a body, which is bytes or becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_AFTER_S)
    try:
        connection.request("POST", "/invocations", data, {"Content-Type": kind})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
