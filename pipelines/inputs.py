"""Stage `inputs`: see `costbench.experiments.stages.inputs`."""

from costbench.experiments.stages import inputs
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(inputs.run, "inputs", str(inputs.__doc__))
