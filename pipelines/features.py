"""Stage `features`: see `costbench.experiments.stages.features`."""

from costbench.experiments.stages import features
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(features.run, "features", str(features.__doc__))
