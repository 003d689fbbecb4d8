"""Stage `schedules`: searches of recorded tables of schedules, tests of models on them and on networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import digest_bytes, unseal
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.identity import identify, write_identity
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench.params import parse_section
from costbench_schedules.experiments.estimated_tuning import EstimatedTuning, search_estimated
from costbench_schedules.experiments.gpu_tuning import GpuTuning, search_gpus
from costbench_schedules.experiments.network_tests import NetworkTesting, evaluate_networks
from costbench_schedules.experiments.table_tuning import ScheduleTuning, tune_schedules
from costbench_schedules.section_file import SECTION, read_sections, section_file


@dataclass(frozen=True)
class SchedulesSection:
    """Section `schedules`: searches for schedules of tensor operators, and tests of models of them.

    Attributes:
        tables: searches of recorded tables, and models of them (docs/schedule_models.md); None for none.
        networks: tests of models on recorded programs of networks (docs/crop.md); None for none.
        estimated: searches of recorded tables with estimates of the analytical model; None for none.
        gpus: searches of tuning tables of kernels on GPUs (docs/your_gpu.md); None for none.
    """

    tables: ScheduleTuning | None = None
    networks: NetworkTesting | None = None
    estimated: EstimatedTuning | None = None
    gpus: GpuTuning | None = None


def load_schedules_section(params: Path) -> SchedulesSection:
    """Reads the section from the file beside a parameter file; a profile without that file asks for nothing.

    Raises:
        ParamsError: for a broken file.
    """
    path = section_file(params)
    if not path.exists():
        return SchedulesSection()
    return parse_section(read_sections(params), SECTION, SchedulesSection, where=path)


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Computes the results that are missing, in a folder for each part of the section.

    Args:
        params: parameter file; the parameters of this stage are in `schedules.yaml` beside it.
        flags: backend that the searches run on.

    Raises:
        CostbenchError: for wrong parameters, or damaged files.
    """
    workspace = load_workspace(load_params(params), flags)
    section = load_schedules_section(params)
    folder = workspace.stage("schedules")
    unseal(folder)
    digests = (
        tune_schedules(section.tables, workspace, folder / "tables"),
        evaluate_networks(section.networks, workspace, folder / "networks"),
        search_estimated(section.estimated, workspace, folder / "estimated"),
        search_gpus(section.gpus, workspace, folder / "gpus"),
    )
    data_digest = digest_bytes(" ".join(digests).encode())[:16]
    write_identity(folder, identify(__name__, section, data_digest))
