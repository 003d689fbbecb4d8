"""Stage `evaluate`: see `costbench.experiments.stages.evaluate`."""

from functools import partial

from costbench.experiments.packed_cells import packed_cells
from costbench.experiments.stages import evaluate
from costbench.experiments.stages.entry import experiment_main

if __name__ == "__main__":
    experiment_main(partial(evaluate.run, open_results=packed_cells()), "evaluate", str(evaluate.__doc__))
