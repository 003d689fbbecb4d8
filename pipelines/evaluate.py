"""Stage `evaluate`: see `costbench.experiments.stages.evaluate`."""

from costbench.experiments.stages import evaluate
from costbench.experiments.stages.entry import experiment_main

if __name__ == "__main__":
    experiment_main(evaluate.run, "evaluate", str(evaluate.__doc__))
