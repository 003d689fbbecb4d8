"""Stage `generate`: see `costbench.experiments.stages.generate`."""

from costbench.experiments.stages import generate
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(generate.run, "generate", str(generate.__doc__))
