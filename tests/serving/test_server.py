"""The server on a socket: every form of a request, every limit, and no word of what is inside."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from costbench.arrays import F64
from costbench.cli.app import app
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError, ParamsError
from costbench.serving import server
from costbench.serving.requests import RequestLimits, limits_from
from costbench.serving.service import CostService, load_service
from costbench.target import load_target
from tests.experiments.finished_cells import finish_cell
from tests.hlo.test_wire import computation_of
from tests.serving.served import post, serving
from tests.serving.test_service import GOOD, TEXT

SMALL = {"output_bounds": [16, 1], "kernel_bounds": [64, 1]}
TILES = [GOOD, SMALL]
RECORD = {"kernel": TEXT, "tiles": TILES}
LIMITS = RequestLimits(body_bytes=100_000, records=3, tiles=10, instructions=20, kernel_bytes=2_000)


def service(limits: RequestLimits = LIMITS) -> CostService:
    return CostService(AnalyticalModel(load_target("tpu_v2").architecture), "tile", "tpu_v2", limits)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(service(), LIMITS) as number:
        yield number


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_records": [RECORD, RECORD]},
        {"dataframe_split": {"columns": ["tiles", "kernel"], "data": [[TILES, TEXT]] * 2}},
        {"dataframe_split": {"columns": ["kernel", "tiles"], "index": [4, 5], "data": [[TEXT, TILES]] * 2}},
        {"instances": [RECORD, RECORD]},
        {"inputs": [RECORD, RECORD]},
        {"inputs": {"kernel": [TEXT, TEXT], "tiles": [TILES] * 2}},
    ],
    ids=["records", "split", "split with index", "instances", "inputs", "columns"],
)  # fmt: skip
def test_all_forms_of_a_request_have_one_answer(port: int, body: object) -> None:
    status, text = post(port, body)
    assert (status, json.loads(text)) == (200, {"predictions": service().answer([RECORD, RECORD])})


def compressed(content: bytes) -> str:
    """Returns a kernel as a client may send it."""
    return base64.b64encode(zstandard.ZstdCompressor().compress(content)).decode()


def doubled_fusions(levels: int) -> str:
    """Returns a kernel whose fusions each stand for twice as many instructions as the one before."""
    bodies = "".join(
        f"c{n} {{ p=f32[8] parameter(0)\n a=f32[8] fusion(p), kind=kLoop, calls=c{n - 1}\n"
        f"b=f32[8] fusion(a), kind=kLoop, calls=c{n - 1} }}\n"
        for n in range(1, levels)
    )
    first = "c0 { p=f32[8] parameter(0)\n r=f32[8] tanh(p) }\n"
    last = f"ENTRY e {{ p=f32[8] parameter(0)\n r=f32[8] fusion(p), kind=kLoop, calls=c{levels - 1} }}\n"
    return f"HloModule m\n{first}{bodies}{last}"


CHAIN = "HloModule m\nENTRY e { x0 = f32[8,128] parameter(0)\n" + "".join(
    f"x{n} = f32[8,128] tanh(x{n - 1})\n" for n in range(1, 22)
)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b"", "body: malformed JSON at line 1"),
        (400, b'{"a": \xff}', "body: not UTF-8 at byte 6"),
        (400, b"[" * 50_000, "body: no JSON that can be read"),
        (400, b'{"inputs": ' + b"1" * 5_000 + b"}", "body: no JSON that can be read"),
        (400, [RECORD], "body: has list (expected a JSON object with one of the keys dataframe_records"),
        (400, {"rows": [RECORD]}, "body: has rows (expected"),
        (400, {"inputs": [RECORD], "instances": [RECORD]}, "body: has inputs, instances (expected"),
        (400, {"inputs": 5}, "inputs: is a number (expected a list of records)"),
        (400, {"inputs": {"kernel": [TEXT], "tiles": []}}, "inputs: has columns that are no lists of equal"),
        (400, {"instances": [5]}, "instances[0]: is a number (expected an object with a kernel)"),
        (400, {"dataframe_split": [RECORD]}, "dataframe_split: is a list (expected an object with lists"),
        (400, {"dataframe_split": {"columns": ["kernel"], "data": [[]]}}, "data[0]: is a list (expected"),
        (400, {"inputs": [RECORD] * 4}, "inputs: 4 records (expected at most 3)"),
        (400, {"inputs": [{"kernel": TEXT, "tiles": [GOOD] * 6}] * 2}, "tiles: 12 tile sizes (expected at"),
        (400, {"inputs": [{"kernel": "HloModule " + "m" * 2_000}]}, "kernel: has 2,010 characters ("),
        (400, {"inputs": [{"kernel": CHAIN + "}"}]}, "0.kernel: has 22 instructions (expected at"),
        (400, {"inputs": [{"kernel": compressed(bytes(1 << 22))}]}, "or more (expected at most 100000)"),
        (400, {"inputs": [{"kernel": compressed(computation_of(9_000))}]}, "18004 bytes of more than 1280 m"),
        (400, {"inputs": [{"kernel": compressed(computation_of(1_200))}]}, "has 1,200 instructions (exp"),
        (400, {"inputs": [{"kernel": doubled_fusions(6)}]}, "too many instructions with fusions inlined (e"),
        (400, {"inputs": [{"kernel": "HloModule m " + "/* " * 600}]}, "a comment that is not closed"),
        (400, {"inputs": [{"kernel": 'HloModule m, a="' + '"a\\' * 600}]}, "a string that is not closed"),
        (400, {"inputs": [{"tiles": [GOOD]}]}, "request 0.kernel: is None (expected base64"),
        (400, {"inputs": [{"kernel": TEXT}]}, "request 0.tiles: is None"),
        (413, b" " * 100_001, "body: too large (expected at most 100,000 bytes)"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_in_a_sentence(port: int, status: int, body: object, message: str) -> None:
    answered, text = post(port, body)
    answer = json.loads(text)
    assert (answered, answer.keys()) == (status, {"error_code", "message"})
    assert message in answer["message"]
    assert len(answer["message"]) < 500
    assert "\n" not in answer["message"]
    assert ".py" not in text


def test_other_types_are_refused(port: int) -> None:
    status, text = post(port, b"kernel\nx", "text/csv")
    assert (status, json.loads(text)["message"]) == (
        415,
        "body: of type text/csv (expected application/json)",
    )


class BrokenModel:
    def predict(self, _kernel: Kernel, _tiles: TileSizes) -> F64:
        raise KeyError("/home/secret/model.json")


def test_a_defect_is_no_ones_to_read() -> None:
    with serving(CostService(BrokenModel(), "tile", "tpu_v2", LIMITS), LIMITS) as port:
        status, text = post(port, {"inputs": [RECORD]})
    assert (status, json.loads(text)["error_code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in text


class SlowModel(BrokenModel):
    def __init__(self) -> None:
        self.called, self.go_on = threading.Event(), threading.Event()

    def predict(self, _kernel: Kernel, tiles: TileSizes) -> F64:
        self.called.set()
        assert self.go_on.wait(20)
        return tiles.output_bounds[:, 0].astype(float)


def test_who_comes_while_many_wait_is_told_so() -> None:
    model, limits = SlowModel(), replace(LIMITS, waiting=1)
    answers: list[tuple[int, str]] = []
    with serving(CostService(model, "tile", "tpu_v2", limits), limits) as port:
        first = threading.Thread(target=lambda: answers.append(post(port, {"inputs": [RECORD]})))
        first.start()
        assert model.called.wait(20)
        status, text = post(port, {"inputs": [RECORD]})
        model.go_on.set()
        first.join(20)
        assert post(port, {"inputs": [RECORD]})[0] == 200
    assert (status, "try again later" in text) == (503, True)
    assert answers == [(200, '{"predictions": [{"costs": [32.0, 16.0]}]}')]


def test_who_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    limits = replace(LIMITS, waiting=1)
    with serving(CostService(SlowModel(), "tile", "tpu_v2", limits), limits) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as silent:
            headers = ("Host: x", "Content-Type: application/json", "Content-Length: 10", "", "")
            silent.sendall("\r\n".join(("POST /invocations HTTP/1.1", *headers)).encode())
            assert silent.recv(64).startswith(b"HTTP/1.1 408 ")
        # Its place is free again: what is refused is the empty request.
        assert post(port, {})[0] == 400


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_what_training_did_not_see_is_marked_and_refused_far_out(task: str, tmp_path: Path) -> None:
    """The model has seen kernels of a few elements."""
    folder = finish_cell(tmp_path / "cell", task, "key", 0.5)
    record: dict[str, Any] = {"kernel": TEXT} | ({"tiles": [GOOD]} if task == "tile" else {})
    far = RequestLimits(beyond_training=1e12, off_estimate=1e12)
    (answer,) = load_service(folder, task, "tpu_v2", far).answer([record])
    outside = answer["outside"]
    near = replace(far, beyond_training=outside["times"] * 0.99)
    with pytest.raises(
        Exception, match=rf"request 0\.kernel: {outside['feature']} lies [0-9,]+ times further"
    ):
        load_service(folder, task, "tpu_v2", near).answer([record])


def test_a_runtime_that_no_machine_has_is_refused(tmp_path: Path) -> None:
    """An untrained network's, beside the estimate of the chip's analytical model."""
    folder = finish_cell(tmp_path / "cell", "fusion", "key", 0.5)
    limits = RequestLimits(beyond_training=1e12, off_estimate=1.5)
    with pytest.raises(DataError, match=r"kernel: [0-9.e+]+ ns were predicted, [0-9.e+]+ ns estimated"):
        load_service(folder, "fusion", "tpu_v2", limits).answer([{"kernel": TEXT}])


def test_limits_are_named() -> None:
    assert limits_from(["tiles=7", "beyond_training=2.5"]) == RequestLimits(tiles=7, beyond_training=2.5)
    for change, message in (("tile=7", "tile"), ("tiles=many", "NAME=NUMBER"), ("tiles=0", "at least 1")):
        with pytest.raises(ParamsError, match=f"--limit.*{message}"):
            limits_from([change])


def test_an_address_that_cannot_be_listened_on_is_one_error(tmp_path: Path) -> None:
    """Before it is said that there are answers."""
    folder = finish_cell(tmp_path / "tile-random-tpu_v2-main-s0", "tile", "key", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        for arguments in (["--port", taken], ["--host", "no.such.host.invalid"]):
            served = CliRunner().invoke(app, ["serve", str(folder), *arguments])
            assert isinstance(served.exception, ParamsError)
            assert served.exception.where is not None
            assert served.exception.where.endswith(arguments[1] if arguments[0] == "--port" else ":5001")
            assert "/invocations" not in served.output
