"""Whether claims about trained models hold on every machine that agrees with the recorded runs.

Beside each chip lies an ensemble of machines that explain its recorded runs about as well. On each of the
first of them the data of the tile and fusion tasks are generated anew, the networks and baselines of the
random split trained and evaluated with the budgets of a parameter file, and the papers' claims decided by the
rule of the reports. A claim whose verdict changes from machine to machine hangs on parameters that nobody
measured. `benchmarks.machine_claims` does the same for findings that need no training.

A machine takes about ten minutes of one core with the default parameters. Each is a work item: finished ones
are kept in the folder, and the same command goes on.

    python -m benchmarks.trained_machine_claims --machines 4
    python -m benchmarks.trained_machine_claims --machines 4 --chip tpu_v2 --json claims.json
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.simulation_throughput import FOLDER
from costbench.artifacts import write_json, write_text
from costbench.hardware.ensemble import load_ensemble, spread
from costbench.metrics.rows import MetricRow, read_rows
from costbench.params import load_yaml
from costbench.reports.claims.data import Claim, Side, load_claims
from costbench.reports.claims.restated import restated
from costbench.reports.claims.rule import CANNOT_TELL, DOES_NOT_HOLD, HOLDS, Finding, evaluate_claims
from costbench.reports.strongest import STRONGEST
from costbench.target import Target, load_target

ROOT = Path(__file__).resolve().parents[1]
SPLIT = "random"
EXPERIMENTS = ("main-tile", "hybrid-tile", "main-fusion", "hybrid-fusion")
HYBRID = ("lpm2021.tile_random_vs_analytical", "lpm2021.fusion_random_vs_analytical")
"""Claims about the learned model that are asked of the hybrid as well, against the strongest baseline."""


@dataclass(frozen=True)
class OverMachines:
    """A claim on the machines of one chip.

    Attributes:
        chip: by name.
        claim: id of the claim.
        unit: of the effect.
        holds: number of machines on which it holds.
        fails: number of machines on which it does not hold.
        open: number of machines on which nothing can be told.
        effects: on each machine, in order.
    """

    chip: str
    claim: str
    unit: str
    holds: int
    fails: int
    open: int
    effects: tuple[float, ...]


def params_of(base: Mapping[str, Any], name: str, chip_file: Path, out: Path) -> dict[str, Any]:
    """Returns parameters that train on one machine: tile and fusion, the random split, no search, no report.

    Args:
        base: the sections of a profile.
        name: of the machine.
        chip_file: that describes it.
        out: folder of the results.
    """
    chips, tasks = [str(chip_file)], ["tile", "fusion"]
    entries = {
        key: {**base["experiments"][key], "splits": [SPLIT], "chips": [name], "transfer": False}
        for key in EXPERIMENTS
    }
    return {
        **{key: base[key] for key in ("train", "baselines", "evaluate")},
        "run": {
            **base["run"],
            "name": name,
            "root": str(ROOT),
            "out": str(out),
            "reports": str(out / "reports"),
        },
        "generate": {**base["generate"], "tasks": tasks, "chips": chips},
        "split": {**base["split"], "names": [SPLIT]},
        "features": {**base["features"], "tasks": tasks, "chips": chips},
        "experiments": entries,
    }


def rows_of(machine: Target, number: int, base: Mapping[str, Any], folder: Path) -> tuple[MetricRow, ...]:
    """Returns the result rows of one machine; runs the stages that have not left theirs.

    Raises:
        subprocess.CalledProcessError: if a stage fails; it says why on the terminal.
    """
    name = f"{machine.name.partition('/')[0]}.m{number:02}"
    out = folder / name
    done = out / "finished.json"
    if not done.exists():
        chip_file, params = out / f"{name}.yaml", out / "params.yaml"
        write_json(chip_file, asdict(replace(machine, name=name)))
        write_json(params, params_of(base, name, chip_file, out / "out"))
        for stage in ("generate", "split", "features"):
            _run(stage, params)
        for key in EXPERIMENTS:
            _run("train", params, "--experiment", key)
            _run("evaluate", params, "--experiment", key)
        write_text(done, "{}\n")
    found = (read_rows(out / "out" / "evaluate" / key / "rows.jsonl") for key in EXPERIMENTS)
    return tuple(sorted({row.key: row for rows in found for row in rows}.values()))


def _run(stage: str, params: Path, *options: str) -> None:
    print(f"{params.parent.name}: {stage} {' '.join(options[1:])}", file=sys.stderr, flush=True)
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{params.parent / 'mlflow.db'}"}
    subprocess.run(
        [sys.executable, f"pipelines/{stage}.py", "--params", str(params), *options],
        cwd=ROOT,
        env=os.environ | tracking,
        check=True,
    )


def questions() -> tuple[Claim, ...]:
    """Returns the papers' claims, restated too, and the hybrid against the strongest baseline."""
    claims = load_claims()
    own = tuple(
        replace(
            claim,
            id=f"{claim.id}@hybrid",
            left=(Side("hybrid"),),
            right=(Side(STRONGEST),),
            statement="The hybrid's error is less than that of the strongest baseline.",
        )
        for claim in claims
        if claim.id in HYBRID
    )
    return (*claims, *restated(claims), *own)


def decided(rows: Iterable[MetricRow]) -> dict[str, Finding]:
    """Returns what the rows of one machine decide, by claim; it stands for the chip that claims name."""
    placed = [replace(row, chip=Side().chip) for row in rows]
    found = evaluate_claims(questions(), placed, 0, 2000)
    return {one.claim.id: one for one in found if one.effect is not None}


def over_machines(chip: str, machines: Sequence[Mapping[str, Finding]]) -> list[OverMachines]:
    """Returns the claims that all machines decide on, in the order of the first."""
    listed = []
    for name, first in machines[0].items():
        found = [machine[name] for machine in machines if name in machine]
        verdicts = [one.verdict for one in found]
        holds, fails, told_nothing = map(verdicts.count, (HOLDS, DOES_NOT_HOLD, CANNOT_TELL))
        effects = tuple(float(one.effect) for one in found if one.effect is not None)
        listed.append(OverMachines(chip, name, first.claim.unit, holds, fails, told_nothing, effects))
    return listed


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, runs the machines one after another, prints a table in Markdown, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machines", type=int, default=4, help="of the ensemble, from the first on")
    parser.add_argument("--chip", choices=("tpu_v3", "tpu_v2"), default="tpu_v3")
    parser.add_argument(
        "--params", type=Path, default=ROOT / "params.yaml", help="profile whose budgets are taken"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes of a stage")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "machines")
    parser.add_argument("--json", type=Path, help="where counts and effects are written")
    options = parser.parse_args(arguments)
    base: dict[str, Any] = dict(load_yaml(options.params))
    base["run"] = {**base["run"], "jobs": options.jobs, "programs": str(FOLDER)}
    machines = load_ensemble(load_target(options.chip))[: options.machines]
    found = [
        decided(rows_of(machine, number, base, options.out.resolve()))
        for number, machine in enumerate(machines)
    ]
    table = over_machines(options.chip, found)
    print(f"| claim, on {len(found)} machines of the ensemble of {options.chip} | holds | does not | open "
          "| effect: median | least | most | |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for one in table:
        over = spread(one.effects)
        assert over is not None
        print(
            f"| {one.claim} | {one.holds} | {one.fails} | {one.open} | {over.median:.3g} "
            f"| {min(one.effects):.3g} | {max(one.effects):.3g} | {one.unit} |"
        )
    if options.json is not None:
        write_json(options.json, [asdict(one) for one in table])


if __name__ == "__main__":
    main(sys.argv[1:])
