"""Reads layout shards as measured programs, the form in which TpuGraphs' files hold them.

`costbench.datasets.tpugraphs.raw` writes such a program as a raw file, `costbench.features.tpugraphs_graphs`
turns it into an `.npz` graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from costbench.arrays import I8
from costbench.compiler.fingerprints import module_fingerprint
from costbench.datasets.record_types import DEFAULT, GENETIC, LAYOUT, RANDOM
from costbench.datasets.storage import Shard
from costbench.datasets.tpugraphs.raw import MAX_RANK, NUM_TENSORS, TuningProgram
from costbench.errors import DataError
from costbench.hlo.reader import module_from_bytes


def layout_shard_path(folder: Path, chip: str, program: str) -> Path:
    """Returns the path of the layout shard of a program on a chip."""
    return folder / "layout" / chip / f"{program}.arrow"


def open_layout_shard(path: Path) -> Shard:
    """Opens a layout shard. Raises: DataError, if it is not one, damaged or of another version."""
    shard = Shard.open(path)
    if shard.record is not LAYOUT:
        raise DataError(f"holds {shard.record.name} samples", where=path, expected="layout samples")
    return shard


def config_features(shard: Shard, start: int = 0, stop: int | None = None) -> I8:
    """Returns TpuGraphs' layout features of a range of configs, int8 [c, n, 18].

    Raises:
        DataError: if a config has an option that its node does not have.
    """
    first, end = shard["option_offsets"][:-1], shard["option_offsets"][1:]
    rows = first + shard["config_options"][start:stop]
    if (rows >= end).any():
        raise DataError("has an option that does not exist", where=shard.path, field="config_options")
    features: I8 = shard["option_layout"][rows]
    return features


def read_layout_program(path: Path) -> TuningProgram:
    """Returns the contents of a shard: program, configurable nodes, layouts and runtime of every config.

    Raises:
        DataError: if the file is not a layout shard or damaged.
        HloError: if its program cannot be read.
    """
    shard = open_layout_shard(path)
    module = module_from_bytes(shard["program"].tobytes(), where=str(path))
    ids = np.array(module.offsets)[shard["node_computation"]] + shard["node_position"]
    layouts = config_features(shard)
    return TuningProgram(
        module=module,
        node_config_ids=ids.astype(np.int64),
        minor_to_major=layouts.reshape(*layouts.shape[:2], NUM_TENSORS, MAX_RANK).astype(np.int64),
        runtime_ns=np.asarray(shard["config_runtime_ns"]),
        is_default=shard["config_source"] == DEFAULT,
        num_failed=int(shard.metadata["num_failed"]),
        fingerprint=int(module_fingerprint(module)[:16], 16),
    )


Family = Literal["xla", "nlp"]
NLP_BUILDERS = frozenset(
    {
        "albert",
        "bert_classifier",
        "bert_pretraining",
        "electra",
        "talking_heads_bert",
        "transformer",
        "transformer_lm",
        "translate",
    }
)
"""Functions of the model zoo that build transformers over text."""
SEARCHES: Mapping[str, tuple[int, int]] = {"random": (DEFAULT, RANDOM), "default": (DEFAULT, GENETIC)}
"""Values of `config_source` that each search's collections hold."""


def family_of(builder: str) -> Family:
    """Returns the family of a program.

    Args:
        builder: call of the model zoo that builds it, such as `bert_classifier(layers=2)`; empty for a user's
            program.
    """
    return "nlp" if builder.partition("(")[0] in NLP_BUILDERS else "xla"


def collection_folder(collection: str) -> str:
    """Returns the name of a collection's folder, in which the colons are hyphens."""
    return collection.replace(":", "-")
