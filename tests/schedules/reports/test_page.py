"""The part of the report that the package adds: claims, rows, headline numbers, a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.reports.claims.evaluation import evaluate_claims
from costbench.reports.frame import frame_of
from costbench.reports.scores import MIN_PROGRAMS
from costbench_schedules.reports.autotvm2018.library import LIBRARY
from costbench_schedules.reports.page import load_part, schedule_claims
from costbench_schedules.reports.table_claims import DEVICES, TARGETS
from costbench_schedules.stage import load_schedules_section
from tests.schedules.reports.autotvm2018.files import write_schedule_files
from tests.schedules.workspaces import workspace_in


def test_a_profile_without_results_has_claims_and_no_page(tmp_path: Path) -> None:
    part = load_part(workspace_in(tmp_path))
    rendered = part.render(evaluate_claims(part.claims, frame_of(part.rows), 0), tmp_path / "figures")
    assert (part.rows, rendered.sections, dict(rendered.summary)) == ((), (), {})
    assert {claim.paper for claim in part.claims} == {"autotvm2018", "crop2024"}


def test_searches_become_a_section_and_headline_numbers(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path)
    write_schedule_files(workspace.stage("schedules") / "tables")
    (workspace.stage("schedules") / "identity.json").write_text(
        '{"params_digest": "p", "data_digest": "d", "code_digest": "c"}'
    )
    part = load_part(workspace)
    rendered = part.render(evaluate_claims(part.claims, frame_of(part.rows), 0), tmp_path / "figures")
    assert [section.anchor for section in rendered.sections] == ["schedules"]
    assert rendered.summary["schedule/native/C2/random/gflops_100"] == 20.0
    assert rendered.summary["schedule/claims/model_vs_random_search/effect"] == pytest.approx(2.0)
    assert [one.code_digest for one in part.identities] == ["c"]
    assert [path.name for path in part.write_machine_facts(tmp_path)] == ["schedule_wall_times.json"]


@pytest.mark.parametrize("profile", ["evidence", "paper"])
def test_larger_profiles_run_every_search_that_claims_compare(repository: Path, profile: str) -> None:
    sections = load_schedules_section(repository / "profiles" / profile / "params.yaml")
    section = sections.tables
    assert section is not None
    assert sections.gpus is not None
    assert min(section.trials, sections.gpus.trials // 2) >= 100
    searches = {
        (arm, target, workload)
        for group in section.searches.values()
        for arm in group.arms
        for target in group.targets
        for workload in group.workloads
    }
    for claim in schedule_claims():
        on_gpus = {side for side in claim.sides if side.chip == DEVICES and side.kernels == "all"}
        assert {side.model.removesuffix("-x2") for side in on_gpus} <= {*sections.gpus.strategies}
        searched = claim.sides and all(side.model != LIBRARY for side in claim.sides)
        if claim.paper == "autotvm2018" and not claim.wall_time and searched:
            chips = {DEVICES: "generic" if any(s.split == TARGETS for s in claim.sides) else "native"}
            shared = [
                {
                    workload
                    for arm, target, workload in searches
                    if (arm, target) == (side.model, chips.get(side.chip, side.chip))
                }
                for side in claim.sides
            ]
            assert len(set.intersection(*shared)) >= MIN_PROGRAMS, claim.id
