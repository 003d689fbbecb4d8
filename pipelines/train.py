"""Stage `train`: see `costbench.experiments.stages.train`."""

from functools import partial

from costbench.experiments.packed_cells import packed_cells
from costbench.experiments.stages import train
from costbench.experiments.stages.entry import experiment_main

if __name__ == "__main__":
    experiment_main(partial(train.run, open_results=packed_cells()), "train", str(train.__doc__))
