"""Stage `split`: see `costbench.experiments.stages.split`."""

from costbench.experiments.stages import split
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(split.run, "split", str(split.__doc__))
