"""Stage `schedules`: see `costbench_schedules.stage`."""

from costbench.experiments.stages.entry import stage_main
from costbench_schedules import stage

if __name__ == "__main__":
    stage_main(stage.run, "schedules", str(stage.__doc__))
