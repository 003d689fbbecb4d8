"""Stage `train`: see `costbench.experiments.stages.train`."""

from costbench.experiments.stages import train
from costbench.experiments.stages.entry import experiment_main

if __name__ == "__main__":
    experiment_main(train.run, "train", str(train.__doc__))
