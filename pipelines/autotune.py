"""Stage `autotune`: see `costbench.experiments.stages.autotune`."""

from costbench.experiments.stages import autotune
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(autotune.run, "autotune", str(autotune.__doc__))
