"""A trained layout network as a model of programs: features, scaling, scores of configs in chunks, files.

A saved model is a folder with `layout_model.json` (description) and `weights.pt`; see `models.model_files`.
"""

from __future__ import annotations

from os import PathLike

import numpy as np
import numpy.typing as npt
import torch

from costbench.arrays import F64
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.errors import DataError
from costbench.models.execution import apply_execution
from costbench.models.layout.inputs import LayoutInputs, LayoutScaling, layout_inputs
from costbench.models.layout.network import LayoutNetwork
from costbench.models.model_files import ModelFormat
from costbench.models.spec import DEFAULT_EXECUTION, Execution, LayoutNetSpec, Predicts
from costbench.rng import stream

CHUNK_VALUES = 1 << 21
"""Node states (rows times configs times width) of a layer per chunk: 8 MB, which caches still help with."""
MAX_CHUNK = 512
MODEL_FILE = "layout_model.json"


class LayoutModel:
    """A trained network, which scores layout configs of any program.

    Scores of equal configs do not depend on which others are asked for, up to rounding (about 1e-6 of the
    spread of scores), except for a network that attends across configs: it compares configs in sets of
    `spec.set_size`, drawn by `seed` from those that are asked for.

    Args:
        net: the network.
        scaling: scalers that it was trained with.
        predicts: what its output means; a logarithm of runtime is as good a score.
        execution: settings for running it.
        seed: seed of the sets of a network that attends across configs.
    """

    def __init__(
        self,
        net: LayoutNetwork,
        scaling: LayoutScaling,
        predicts: Predicts,
        execution: Execution = DEFAULT_EXECUTION,
        seed: int = 0,
    ) -> None:
        self.net = net.eval()
        self.scaling = scaling
        self.predicts = predicts
        self.seed = seed
        self._execution = execution

    def predict(self, graph: LayoutGraph, rows: npt.ArrayLike | None = None) -> F64:
        """Returns the scores of a program's configs, float64 [c]; lower is faster.

        Memory does not depend on the number of configs: they are read and scored in chunks.

        Args:
            graph: the program.
            rows: indices of the configs to score; all of them if left out.

        Raises:
            DataError: if features or scores are not finite, or the features have another width than those of
                the training.
        """
        device = self.net.level.device
        return self.predict_inputs(layout_inputs(graph, self.scaling, self.net.spec, device), rows)

    def predict_inputs(self, inputs: LayoutInputs, rows: npt.ArrayLike | None = None) -> F64:
        """Returns the same for a graph whose inputs are at hand, to score several times."""
        with apply_execution(self._execution):
            return config_scores(self.net, inputs, rows, self.seed)


def config_scores(
    net: LayoutNetwork, inputs: LayoutInputs, rows: npt.ArrayLike | None = None, seed: int = 0
) -> F64:
    """Returns the scores of configs, float64 [c], in chunks; what no config touches is computed once.

    Raises:
        DataError: if a score is not finite.
    """
    configs = np.arange(inputs.graph.num_configs) if rows is None else np.asarray(rows, np.int64)
    order = np.arange(len(configs))
    step = chunk_configs(net, inputs)
    if net.spec.across_configs != "none":
        order, step = (
            stream(seed, "sets of configs", len(configs)).permutation(len(configs)),
            net.spec.set_size,
        )
    all_scores = np.empty(len(configs))
    with torch.inference_mode():
        fixed = net.fixed_part(inputs) if net.splits else None
        for start in range(0, len(configs), step):
            indices = order[start : start + step]
            options = inputs.option_rows(configs[indices])
            scores = net(inputs, options) if fixed is None else net.scores(inputs, fixed, options)
            all_scores[indices] = scores.cpu().numpy()
    if not np.isfinite(all_scores).all():
        raise DataError("the network's scores are not finite", field="scores", expected="finite numbers")
    return all_scores


def chunk_configs(net: LayoutNetwork, inputs: LayoutInputs) -> int:
    """Returns how many configs are scored at a time."""
    rows = inputs.plan.largest if net.splits else inputs.view.num_nodes
    return int(np.clip(CHUNK_VALUES // max(1, rows * net.spec.hidden), 1, MAX_CHUNK))


def _check_seed(seed: object) -> None:
    if not isinstance(seed, int):
        raise DataError(f"{seed!r}", expected="int")


_FORMAT: ModelFormat[LayoutNetwork, LayoutScaling] = ModelFormat(
    file=MODEL_FILE,
    name="costbench layout model 1",
    noun="layout model",
    spec=LayoutNetSpec,
    scaling_from_dict=LayoutScaling.from_dict,
    build=lambda spec, scaling: LayoutNetwork(spec, scaling.node.num_outputs, scaling.option.num_outputs),
    extra="seed",
    check_extra=_check_seed,
)


def save_layout_model(
    folder: str | PathLike[str], net: LayoutNetwork, scaling: LayoutScaling, predicts: Predicts, seed: int
) -> None:
    """Writes a model of layouts; arguments and errors are those of `ModelFormat.write`.

    `seed` is that of the sets of a network that attends across configs.
    """
    _FORMAT.write(folder, net, scaling, predicts, seed)


def load_layout_model(
    folder: str | PathLike[str],
    execution: Execution = DEFAULT_EXECUTION,
    *,
    device: torch.device | str = "cpu",
) -> LayoutModel:
    """Loads the model of layouts in `folder`.

    Args:
        folder: folder written by `save_layout_model`.
        execution: settings for running the network on a CPU.
        device: device to run the network on.

    Raises:
        DataError: naming the file and the field, if a file is missing, truncated, damaged, of another format,
            or no layout model at all.
    """
    saved = _FORMAT.read(folder)
    return LayoutModel(saved.net.to(device), saved.scaling, saved.predicts, execution, saved.extra)
