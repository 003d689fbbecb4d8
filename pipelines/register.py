"""Stage `register`: see `costbench.experiments.stages.register`."""

from costbench.experiments.stages import register
from costbench.experiments.stages.entry import stage_main

if __name__ == "__main__":
    stage_main(register.run, "register", str(register.__doc__))
