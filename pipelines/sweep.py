"""Stage `sweep`: see `costbench.experiments.stages.sweep`."""

from costbench.experiments.stages import sweep
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(sweep.run, "sweep", str(sweep.__doc__))
