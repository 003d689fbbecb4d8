"""A server of a trained cost model: `POST /invocations`, as MLflow's own server has it, with limits.

What a client sent is refused in a sentence with status 400 (413 for a body that is too large, 408 for one
that does not come, 415 for another type, 503 while too many wait), in MLflow's form
`{"error_code": ..., "message": ...}`. Whatever else goes wrong is a line in the server's log, and status 500
without a word of it. Answers are computed one after another, in a thread: the network uses the cores by
itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from costbench.errors import CostbenchError, ParamsError
from costbench.serving.requests import RequestLimits, read_rows
from costbench.serving.service import CostService

_log = logging.getLogger(__name__)
_JSON = "application/json"
_PATIENCE = 60
"""Seconds in which a body has to be there."""
_BACKLOG = 2048
"""Connections that wait to be accepted, as many as uvicorn lets wait."""


class _RefusalError(Exception):
    """An answer other than 200.

    Args:
        status: HTTP status.
        code: MLflow's name of the error.
        message: sentence for the client.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    def response(self) -> Response:
        return JSONResponse({"error_code": self.code, "message": self.message}, self.status)


def create_app(service: CostService, limits: RequestLimits) -> Starlette:
    """Returns the application: `/invocations`, and `/ping` and `/health`, which answer 200."""
    turn = asyncio.Lock()
    waiting = 0

    async def invocations(request: Request) -> Response:
        nonlocal waiting
        if waiting >= limits.waiting:
            busy = f"{waiting} requests are waiting (expected at most {limits.waiting}): try again later"
            return _RefusalError(503, "TEMPORARILY_UNAVAILABLE", busy).response()
        waiting += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                body = await _read_body(request, limits.body_bytes)
            async with turn:
                return Response(await asyncio.to_thread(_answer, service, body, limits), media_type=_JSON)
        except _RefusalError as refused:
            return refused.response()
        except TimeoutError:
            message = f"body: not there after {_PATIENCE} s"
            return _RefusalError(408, "INVALID_PARAMETER_VALUE", message).response()
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            _log.exception("a request failed")
            message = "the server failed; its log says why"
            return _RefusalError(500, "INTERNAL_ERROR", message).response()
        finally:
            waiting -= 1

    async def ping(_request: Request) -> Response:
        return Response("\n", media_type=_JSON)

    return Starlette(
        routes=[
            Route("/invocations", invocations, methods=["POST"]),
            Route("/ping", ping),
            Route("/health", ping),
        ]
    )


async def _read_body(request: Request, limit: int) -> bytes:
    """Returns the body of a request, and stops reading where it is too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        message = f"body: of type {kind[:40] or 'unknown'} (expected {_JSON})"
        raise _RefusalError(415, "INVALID_PARAMETER_VALUE", message)
    body = bytearray()
    declared = request.headers.get("content-length", "0")
    is_large = declared.isdecimal() and int(declared[:20]) > limit
    if not is_large:
        async for chunk in request.stream():
            body += chunk
            is_large = len(body) > limit
            if is_large:
                break
    if is_large:
        message = f"body: too large (expected at most {limit:,} bytes)"
        raise _RefusalError(413, "INVALID_PARAMETER_VALUE", message)
    return bytes(body)


def _answer(service: CostService, body: bytes, limits: RequestLimits) -> str:
    try:
        return json.dumps({"predictions": service.answer(read_rows(body, limits))})
    except CostbenchError as error:
        raise _RefusalError(400, "INVALID_PARAMETER_VALUE", error.message()) from None


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address, the first of IPv4 where a name has several.

    Raises:
        ParamsError: if that is impossible.
    """
    try:
        family, *_, address = min(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        problem = f"cannot be listened on: {error.strerror or error}"
        raise ParamsError(problem, where=f"{host}:{port}", expected="another --host or --port") from error


def serve(service: CostService, limits: RequestLimits, listening: socket.socket) -> None:
    """Answers requests until the process is interrupted.

    Args:
        service: model that answers.
        limits: limits of requests.
        listening: socket that clients connect to.
    """
    config = uvicorn.Config(create_app(service, limits), log_level="warning", access_log=False)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
