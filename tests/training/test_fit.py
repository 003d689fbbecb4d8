from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.arrays import I64
from costbench.errors import ChoiceError, DataError
from costbench.features.packed_kernels import PackedKernels
from costbench.metrics.ranking import kendall_tau
from costbench.models.checkpoint import MODEL_FILE, load_checkpoint
from costbench.models.graph_batch import FeatureScaling, KernelSamples
from costbench.models.model_files import WEIGHTS_FILE
from costbench.models.spec import NetSpec
from costbench.training.fit import fit
from costbench.training.lightning_module import MATRIX_OPTIMIZERS
from costbench.training.lightning_run import RESUME_FILE
from costbench.training.spec import BatchSpec, FitResult, OptimizerSpec, TrainSpec
from tests.training.kernel_list import KernelList, small_kernels

TRAIN, VALIDATION = small_kernels(0, num_kernels=12), small_kernels(1, num_kernels=6)
SPEC = TrainSpec(
    net=NetSpec(hidden=8, opcode_embedding=4, encoder_layers=1, node_final_layers=1, dropout=0.1),
    batch=BatchSpec(kernels=4, configs=8, per_epoch=6),
    optimizer=OptimizerSpec(learning_rate=3e-3, averaging=0.5),
    epochs=4,
    patience=4,
)
IMPATIENT = replace(SPEC, seed=3, optimizer=replace(SPEC.optimizer, learning_rate=0.02), epochs=6, patience=1)


class StoppedError(Exception):
    """Stands for the end of the process."""


class Epochs(list[tuple[int, Mapping[str, float]]]):
    """A logger that can fail, as if the process had been killed, at an epoch."""

    def __init__(
        self, fail_at: int | None = None, rows: Iterable[tuple[int, Mapping[str, float]]] = ()
    ) -> None:
        super().__init__(rows)
        self._fail_at = fail_at

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        if len(self) == self._fail_at:
            raise StoppedError
        self.append((step, metrics))


def run(folder: Path, spec: TrainSpec = SPEC, logger: Epochs | None = None) -> FitResult:
    return fit(spec, TRAIN, VALIDATION, folder, logger=logger)


def outcome(result: FitResult) -> tuple[float, int, int]:
    return result.best_metric, result.best_epoch, result.steps


def model_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[FitResult, Epochs]:
    epochs = Epochs()
    return run(tmp_path_factory.mktemp("fit") / "model", logger=epochs), epochs


def test_two_runs_leave_the_same_bytes(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    result, _ = reference
    again = run(tmp_path / "model")
    assert model_bytes(again.checkpoint) == model_bytes(result.checkpoint)
    assert outcome(again) == outcome(result)


def test_records_say_what_computed_the_network(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    wide = replace(SPEC, epochs=1, net=replace(SPEC.net, hidden=16))
    # Widths of 8 have no compiled kernels, those of 16 have.
    assert reference[0].computed_by == "plain"
    assert run(tmp_path / "wide", wide).computed_by == "compiled"
    unused = replace(wide, execution=replace(wide.execution, compiled=False))
    assert run(tmp_path / "plain", unused).computed_by == "plain"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_and_prediction_run_on_a_gpu(precision: Literal["fp32", "bf16"], tmp_path: Path) -> None:
    spec = replace(SPEC, accelerator="auto", precision=precision)
    first, again = (run(tmp_path / name, spec) for name in ("first", "again"))
    assert (first.computed_by, "GPU" in first.execution) == ("plain", True)
    assert outcome(first) == outcome(again)
    costs = []
    for device in ("cpu", "cuda"):
        model = load_checkpoint(first.checkpoint, device=device)
        costs.append(np.concatenate(model.predict_kernels([VALIDATION[0], VALIDATION[1]])))
    np.testing.assert_allclose(costs[1], costs[0], rtol=1e-3, atol=1e-4)


def test_another_seed_is_another_model(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    other = run(tmp_path / "model", replace(SPEC, seed=1))
    assert model_bytes(other.checkpoint) != model_bytes(reference[0].checkpoint)


def test_result_describes_the_kept_model(reference: tuple[FitResult, Epochs]) -> None:
    result, epochs = reference
    taus = [metrics["validation/tau"] for _, metrics in epochs]
    assert [step for step, _ in epochs] == [6, 12, 18, 24]
    names = {f"validation/{name}" for name in ("tau", "opa", "ape", "slowdown")}
    assert set(epochs[0][1]) == {*names, "training/loss"}
    assert result.best_epoch == int(np.argmax(taus))
    assert result.best_metric == max(taus)
    assert result.steps == 24
    model = load_checkpoint(result.checkpoint)
    found = [kendall_tau(model.predict_graph(k.graph, k.config_features), k.runtime_ns) for k in VALIDATION]
    assert np.mean(found) == pytest.approx(result.best_metric, abs=1e-6)


def test_nothing_but_the_model_is_left(reference: tuple[FitResult, Epochs]) -> None:
    assert set(model_bytes(reference[0].checkpoint)) == {MODEL_FILE, WEIGHTS_FILE}


class Dying:
    """Training kernels that end the process at a batch."""

    def __init__(self, batches: int) -> None:
        self._left = batches
        self.application, self.num_configs = TRAIN.application, TRAIN.num_configs
        self.extremes = TRAIN.extremes

    def __len__(self) -> int:
        return len(TRAIN)

    def scaled(self, scaling: FeatureScaling) -> Dying:
        return self

    def __getitem__(self, index: int) -> KernelSamples:
        return TRAIN[index]

    def pack(self, kernels: Sequence[int], configs: Sequence[I64]) -> PackedKernels:
        self._left -= 1
        if self._left < 0:
            self.die()
        return TRAIN.pack(kernels, configs)

    def die(self) -> None:
        raise StoppedError


@pytest.fixture(scope="module")
def stopped_early(tmp_path_factory: pytest.TempPathFactory) -> tuple[FitResult, Epochs]:
    """A whole run whose third and last epoch is the first that is no better."""
    epochs = Epochs()
    result = run(tmp_path_factory.mktemp("early") / "model", IMPATIENT, epochs)
    assert (result.steps, result.best_epoch) == (18, 1)
    return result, epochs


def require_ends_as(whole: tuple[FitResult, Epochs], folder: Path, spec: TrainSpec, before: Epochs) -> Epochs:
    """Goes on in `folder`; model, result and the two parts of the curve are those of the whole run."""
    after = Epochs()
    result = run(folder, spec, after)
    assert model_bytes(folder) == model_bytes(whole[0].checkpoint)
    assert outcome(result) == outcome(whole[0])
    assert dict(before) | dict(after) == dict(whole[1])
    return after


@pytest.mark.parametrize("fail_at", [0, 2])
def test_stopped_before_its_epoch_is_safe_that_epoch_is_done_again(
    reference: tuple[FitResult, Epochs], tmp_path: Path, fail_at: int
) -> None:
    before = Epochs(fail_at)
    with pytest.raises(StoppedError):
        run(tmp_path / "model", logger=before)
    after = require_ends_as(reference, tmp_path / "model", SPEC, before)
    assert list(after) == list(reference[1])[fail_at:]


@pytest.mark.parametrize("batches", [6, 8, 12, 13])
def test_stopped_within_an_epoch_or_between_two_a_run_ends_as_a_whole_one(
    stopped_early: tuple[FitResult, Epochs], tmp_path: Path, batches: int
) -> None:
    before = Epochs()
    with pytest.raises(StoppedError):
        fit(IMPATIENT, Dying(batches), VALIDATION, tmp_path / "model", logger=before)
    after = require_ends_as(stopped_early, tmp_path / "model", IMPATIENT, before)
    assert list(after) == list(stopped_early[1])[batches // 6 :]


def test_stopped_twice_a_run_ends_as_a_whole_one(
    stopped_early: tuple[FitResult, Epochs], tmp_path: Path
) -> None:
    before = Epochs()
    for batches in (8, 9):
        with pytest.raises(StoppedError):
            fit(IMPATIENT, Dying(batches), VALIDATION, tmp_path / "model", logger=before)
    after = require_ends_as(stopped_early, tmp_path / "model", IMPATIENT, before)
    assert list(after) == list(stopped_early[1])[2:]


@pytest.mark.parametrize("method", MATRIX_OPTIMIZERS)
def test_stopped_between_epochs_a_run_by_a_matrix_optimiser_ends_as_a_whole_one(
    tmp_path: Path, method: Literal["muon", "soap"]
) -> None:
    spec, epochs, before = (
        replace(SPEC, optimizer=replace(SPEC.optimizer, method=method)),
        Epochs(),
        Epochs(2),
    )
    whole = run(tmp_path / "whole", spec, epochs)
    with pytest.raises(StoppedError):
        run(tmp_path / "stopped", spec, before)
    require_ends_as((whole, epochs), tmp_path / "stopped", spec, before)


@pytest.mark.parametrize("spec", [SPEC, IMPATIENT], ids=["all epochs", "out of patience"])
def test_stopped_after_its_last_epoch_a_run_does_no_more(
    spec: TrainSpec, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = request.getfixturevalue("reference" if spec is SPEC else "stopped_early")

    def stop(path: Path, missing_ok: bool = False) -> None:
        raise StoppedError(path, missing_ok)

    before = Epochs()
    with monkeypatch.context() as patch, pytest.raises(StoppedError, match=RESUME_FILE):
        # The first that is removed is the point to resume from, at the very end.
        patch.setattr(Path, "unlink", stop)
        run(tmp_path / "model", spec, before)
    after = require_ends_as(whole, tmp_path / "model", spec, before)
    assert list(after) == []


KILLED = """
import os, signal
from pathlib import Path
from costbench.training.fit import fit
from costbench.training.lightning_module import MATRIX_OPTIMIZERS
from tests.training import test_fit as t

class Killed(t.Dying):
    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

for batches in {batches!r}:
    child = os.fork()
    if child == 0:
        fit(t.IMPATIENT, Killed(batches), t.VALIDATION, Path({folder!r}, str(batches)))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
KILLED_AT = (12, 15)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Folders of killed runs, named by their last batch; forked from one process that imports torch."""
    folder = tmp_path_factory.mktemp("killed")
    code = KILLED.format(folder=str(folder), batches=KILLED_AT)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [str(-signal.SIGKILL)] * len(KILLED_AT), done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("batches", KILLED_AT)
def test_a_killed_run_ends_as_a_whole_one(
    stopped_early: tuple[FitResult, Epochs], killed: Path, batches: int
) -> None:
    folder = killed / str(batches)
    assert list(folder.glob(f"*.{RESUME_FILE}"))
    after = require_ends_as(stopped_early, folder, IMPATIENT, Epochs(rows=stopped_early[1][:2]))
    assert [step for step, _ in after] == [18]


def test_what_another_run_left_is_not_resumed(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        run(tmp_path / "model", replace(SPEC, seed=1), Epochs(fail_at=2))
    run(tmp_path / "model")
    assert model_bytes(tmp_path / "model") == model_bytes(reference[0].checkpoint)


def test_a_run_on_other_runtimes_is_not_resumed(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    slower = KernelList([replace(sample, runtime_ns=2.0 * sample.runtime_ns) for sample in TRAIN])
    with pytest.raises(StoppedError):
        fit(SPEC, slower, VALIDATION, tmp_path / "model", logger=Epochs(fail_at=2))
    run(tmp_path / "model")
    assert model_bytes(tmp_path / "model") == model_bytes(reference[0].checkpoint)


def test_kernels_without_decisions_do_not_move_the_level(tmp_path: Path) -> None:
    empty = replace(
        TRAIN[0], runtime_ns=TRAIN[0].runtime_ns[:0], config_features=TRAIN[0].config_features[:0]
    )
    levels = []
    for samples in (list(TRAIN), [*TRAIN, empty]):
        fit(
            replace(SPEC, loss="mse", epochs=1, optimizer=OptimizerSpec(learning_rate=1e-12)),
            KernelList(samples),
            VALIDATION,
            tmp_path / str(len(samples)),
        )
        levels.append(load_checkpoint(tmp_path / str(len(samples))).net.level.item())
    assert levels[0] == pytest.approx(levels[1])


def test_training_stops_when_validation_no_longer_improves(tmp_path: Path) -> None:
    # A vanishing learning rate: no epoch after the first is better.
    idle = replace(SPEC, epochs=10, patience=2, optimizer=OptimizerSpec(learning_rate=1e-12))
    epochs = Epochs()
    result = run(tmp_path / "model", idle, epochs)
    assert (len(epochs), result.best_epoch) == (3, 0)


def test_features_are_kept_from_the_network(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    dropped = run(tmp_path / "dropped", replace(SPEC, drop_features=("_product",)))
    whole, without = (load_checkpoint(one.checkpoint) for one in (reference[0], dropped))
    assert outcome(dropped) != outcome(reference[0])
    assert whole.predict_kernels(VALIDATION[:2])[0].shape == without.predict_kernels(VALIDATION[:2])[0].shape


def test_features_that_there_are_not_cannot_be_dropped() -> None:
    with pytest.raises(ValueError, match="no feature's name ends with '_prodct'"):
        TrainSpec(drop_features=("_prodct",))


def test_ape_is_monitored_downwards(tmp_path: Path) -> None:
    epochs = Epochs()
    result = run(tmp_path / "model", replace(SPEC, monitor="ape"), epochs)
    assert result.best_metric == min(metrics["validation/ape"] for _, metrics in epochs)


def test_squared_error_learns_runtimes(tmp_path: Path) -> None:
    spec = replace(
        SPEC,
        loss="mse",
        net=NetSpec(hidden=16, opcode_embedding=4, encoder_layers=1),
        optimizer=OptimizerSpec(learning_rate=1e-2),
        batch=BatchSpec(kernels=8, configs=8, per_epoch=40),
    )
    model = load_checkpoint(run(tmp_path / "model", spec).checkpoint)
    errors = [
        np.abs(np.log(model.predict_graph(k.graph, k.config_features) / k.runtime_ns)).mean() for k in TRAIN
    ]
    # Log runtimes range over 2.5 here.
    assert np.mean(errors) < 0.5


def test_costs_start_at_the_mean_log_runtime(tmp_path: Path) -> None:
    """Mean over kernels of the mean over their decisions; a hybrid's is of runtimes over estimates."""
    mse = replace(SPEC, loss="mse", epochs=1)
    level = float(load_checkpoint(run(tmp_path / "plain", mse).checkpoint).net.level)
    assert level == pytest.approx(np.mean([np.log(k.runtime_ns).mean() for k in TRAIN]), rel=1e-6)
    assert (
        float(load_checkpoint(run(tmp_path / "ranks", replace(SPEC, epochs=1)).checkpoint).net.level) == 0.0
    )
    # Estimates that are half of every runtime.
    kernels = [
        KernelList(replace(k, analytical_ns=k.runtime_ns / 2.0) for k in s) for s in (TRAIN, VALIDATION)
    ]
    hybrid = replace(mse, net=replace(SPEC.net, residual="analytical"))
    result = fit(hybrid, *kernels, tmp_path / "hybrid")
    assert float(load_checkpoint(result.checkpoint).net.level) == pytest.approx(np.log(2.0), rel=1e-6)


def test_mixed_precision_learns_to_rank_as_well(reference: tuple[FitResult, Epochs], tmp_path: Path) -> None:
    result = run(tmp_path / "model", replace(SPEC, precision="bf16"))
    assert result.best_metric == pytest.approx(reference[0].best_metric, abs=0.2)


def test_the_random_state_of_the_caller_is_kept(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    run(tmp_path / "model", replace(SPEC, epochs=1))
    assert torch.equal(torch.rand(2), expected)


def test_a_diverging_run_is_an_error(tmp_path: Path) -> None:
    wild = replace(SPEC, optimizer=OptimizerSpec(learning_rate=1e30, gradient_clip_norm=None))
    with pytest.raises(DataError, match="the loss is no longer finite in epoch"):
        run(tmp_path / "model", wild)


def test_unknown_encoder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="unknown encoder 'gcn9'"):
        run(tmp_path / "model", replace(SPEC, net=NetSpec(encoder="gcn9")))


def test_sources_that_rank_nothing_are_an_error(tmp_path: Path) -> None:
    single = KernelList([kernel_samples(0, num_nodes=2, num_configs=1), *TRAIN[:0]])
    with pytest.raises(DataError, match="none of 1 kernels"):
        fit(SPEC, single, VALIDATION, tmp_path / "model")
    with pytest.raises(DataError, match="no validation kernel"):
        fit(SPEC, TRAIN, single, tmp_path / "model")
    with pytest.raises(DataError, match="no training rows"):
        fit(SPEC, KernelList(), VALIDATION, tmp_path / "model")


@pytest.mark.parametrize("field", ["epochs", "patience"])
def test_impossible_lengths_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        replace(SPEC, **{field: 0})  # type: ignore[arg-type]
