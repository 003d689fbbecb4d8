"""Stage `train`: see `costbench.experiments.stages.train`."""

from costbench.experiments.stages import train
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(train.run, "train", str(train.__doc__))
