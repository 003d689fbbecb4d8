"""Stage `report`: see `costbench.reports.stage`."""

from costbench.experiments.stages.entry import stage_main
from costbench.reports import stage

if __name__ == "__main__":
    stage_main(stage.run, "report", str(stage.__doc__))
