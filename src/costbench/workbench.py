"""What a notebook needs, under short names: `import costbench`, then `costbench.load_program("step.hlo.pb")`.

Every function is a few lines over the packages that do the work, whose own interfaces have the options that
are left out here. `import costbench` imports nothing; each name is imported when it is first used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from costbench.arrays import F64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import PreparedProgram, UniqueKernel
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import TileSpace
from costbench.compiler.tile_space import tile_space as space_of
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.models.cost_model import CostModel
from costbench.target import Target, load_target

if TYPE_CHECKING:
    from costbench.features.pyg_dataset import KernelDataset

__all__ = [
    "dataset",
    "kernels",
    "load_model",
    "load_program",
    "load_target",
    "measure",
    "predict",
    "tile_space",
]
CHIP = "tpu_v3"
ANALYTICAL = "analytical"


def load_program(path: str | Path, name: str = "") -> PreparedProgram:
    """Returns the program in a file, compiled when its kernels are asked for.

    Args:
        path: HLO as a binary message, plain or compressed, or as text.
        name: name of the program; the file's without its endings if left out.

    Raises:
        HloError: if the file is no HLO module.
    """
    from costbench.hlo.inlining import inline_fusions

    path = Path(path)
    return PreparedProgram(inline_fusions(read_module(path)), name or path.name.partition(".")[0])


def kernels(program: PreparedProgram) -> tuple[UniqueKernel, ...]:
    """Returns the kernels that the default fusions make of a program; those that cost the same, once."""
    return tuple(program.unique_kernels)


def tile_space(kernel: Kernel | UniqueKernel, chip: str | Target = CHIP) -> TileSpace:
    """Returns the tile sizes of a kernel on a chip: `space.decode(space.legal_ids())` are all of them.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered.
    """
    return space_of(_kernel(kernel), _target(chip).architecture)


def measure(
    kernel: Kernel | UniqueKernel, tile_sizes: TileSizes, chip: str | Target = CHIP, seed: int = 0
) -> F64:
    """Returns nanoseconds on the simulated chip, float64 [n]; infinite for tile sizes that do not compile.

    Args:
        kernel: kernel that runs.
        tile_sizes: n tile sizes.
        chip: name of a chip, a YAML file, or a target.
        seed: seed of the machine's noise.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered, or the machine has no routine for it.
    """
    return Device(_target(chip), seed).predict(_kernel(kernel), tile_sizes)


def load_model(name: str = ANALYTICAL, chip: str | Target = CHIP) -> CostModel:
    """Returns a cost model.

    Args:
        name: `analytical`; the folder of a trained model; `module:Class` of your own.
        chip: chip whose public figures the analytical model, and hybrids with it, go by.

    Raises:
        DataError: if there is no such model, or it is damaged.
    """
    from costbench.execution.dotted import is_dotted
    from costbench.models.user_model import load_user_model

    analytical = AnalyticalModel(_target(chip).architecture)
    if name == ANALYTICAL:
        return analytical
    if is_dotted(name):
        return load_user_model(name, analytical.architecture)
    from costbench.models.checkpoint import load_checkpoint

    return load_checkpoint(Path(name), analytical=analytical)


def predict(
    kernel: Kernel | UniqueKernel,
    tile_sizes: TileSizes,
    model: str | CostModel = ANALYTICAL,
    chip: str | Target = CHIP,
) -> F64:
    """Returns what a cost model predicts of tile sizes, float64 [n]; lower is faster.

    Args:
        kernel: kernel that is priced.
        tile_sizes: n tile sizes.
        model: name as `load_model` takes it, or a model.
        chip: chip as `load_model` takes it.

    Raises:
        DataError: as `load_model` does.
        UnsupportedKernelError: if the model cannot price the kernel.
    """
    cost_model = load_model(model, chip) if isinstance(model, str) else model
    return cost_model.predict(_kernel(kernel), tile_sizes)


def dataset(
    root: str | Path = "out/laptop",
    task: str = "tile",
    chip: str = CHIP,
    split: str = "random",
    part: str = "train",
) -> KernelDataset:
    """Returns measured kernels as a PyTorch Geometric data set (docs/your_network.md).

    Args:
        root: output folder of a profile whose stages `features` and `split` are done.
        task: `tile` or `fusion`.
        chip: name of the chip.
        split: `random`, `manual`, `fold1` and so on.
        part: `train`, `validation` or `test`.

    Raises:
        DataError: naming what is missing.
        ChoiceError: for another part.
    """
    from costbench.features.pyg_dataset import KernelDataset

    return KernelDataset(root, task=task, chip=chip, split=split, part=part)  # type: ignore[arg-type]


def _kernel(kernel: Kernel | UniqueKernel) -> Kernel:
    return kernel.kernel if isinstance(kernel, UniqueKernel) else kernel


def _target(chip: str | Target) -> Target:
    return load_target(chip) if isinstance(chip, str) else chip
