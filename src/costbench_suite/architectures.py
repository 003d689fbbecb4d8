"""Entries of architectures that are tuned, trained and scored alike; a rerun goes on where it was.

An architecture is a variant of `architectures-tile` or `architectures-fusion`, experiments of the suite's
profiles. A sweep of its own chooses its hyper-parameters, with as many trials as any other has; with them it
is trained on each fold. Baselines are fitted once. On a fresh test set an architecture has the
hyper-parameters that were chosen on the suite's own data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from costbench.artifacts import digest_file, read_bytes, read_json, write_bytes, write_json
from costbench.baselines import BASELINES
from costbench.errors import DataError, choose
from costbench.experiments.grid.cells import LABEL, MAIN
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.identity import IDENTITY_FILE, code_digest
from costbench.experiments.parameter_file import FILE, SECTION, load_params
from costbench.experiments.stages import split, sweep, train
from costbench.experiments.stages.sweep import SweepFlags, load_sweep
from costbench.experiments.sweeps.best import best_path, read_best
from costbench.experiments.sweeps.sweep import trials_path
from costbench.experiments.workspace import load_workspace
from costbench.params import merge
from costbench.store import Entry, KeyedResult, key_of
from costbench_schedules.devices.host import model_name
from costbench_suite.card import About, card_path, make_card, read_card, write_card
from costbench_suite.data import SHARD_SOURCES
from costbench_suite.predictions import Predictions, read_predictions, run_model, write_predictions
from costbench_suite.scoring import score
from costbench_suite.task_data import TaskData
from costbench_suite.trained_models import predict_experiment

LEARNED, TUNED, BASELINE_GROUP = "learned", "tuned", "baselines"
"""Names: of the variant `main`; of the architecture whose parts its sweep chooses, too; of all baselines."""
RANDOM = "examples.suite_random:Random"
_PARTS = frozenset({"net.encoder", "net.reduction", "net.residual", "loss"})
"""Hyper-parameters that make an architecture, which the sweep of one leaves as they are."""
_AUTHORS = "costbench"


@dataclass(frozen=True)
class PredictedModels(KeyedResult):
    """Predictions of an experiment, which lie beside their note, `MODEL.parquet`.

    Attributes:
        predict_s: processor time of each network's predictions, in seconds; 0 for a baseline.
    """

    predict_s: Mapping[str, float]


class Architectures:
    """The architectures of a task, and where their entries are made.

    Args:
        params: parameter file of a profile of the suite; None for the one that the task's data are of.
        data: data of the task.
        work: folder in which `costbench suite data` made them; trainings and predictions are kept there.
        entries: folder of result cards; beside them are the hyper-parameters that sweeps chose.
        progress: function that is told what is being done.

    Raises:
        CostbenchError: for parameters without the experiment, or a folder of work of other data.
    """

    def __init__(
        self, params: Path | None, data: TaskData, work: Path, entries: Path, progress: Callable[[str], None]
    ) -> None:
        name = data.task.name
        source = choose(SHARD_SOURCES, name, "task of architectures")
        profile = load_params(params or Path(source.profile))
        self.data, self.entries, self.progress = data, entries, progress
        self.task, self.work = source.task, source.work(work.resolve())
        experiment = f"architectures-{source.task}"
        self._splits = load_experiment(profile, experiment).grid.splits
        self._experiment: Mapping[str, Any] = profile.sections[SECTION][experiment]
        self._chip = source.measured_on(data.facts.fresh)
        features = self.work / "features" / source.task / self._chip
        if not (self.work / FILE).is_file() or not features.is_dir():
            expected = "--work of the `costbench suite data` that made the data"
            raise DataError(f"no features of {name} on {self._chip}", where=self.work, expected=expected)
        made = load_params(self.work / FILE)
        programs = load_workspace(made).programs
        # A recorded machine has no compiler that estimates: a roofline is fitted to training programs.
        self._has_estimate = self._chip not in made.sections["generate"].get("recorded", {})
        self._sections = {
            **profile.sections,
            **{name: made.sections[name] for name in ("generate", "split", "features")},
            "run": {
                **profile.sections["run"],
                "root": str(load_workspace(profile).root),
                "out": str(self.work),
                "programs": str(programs),
            },
        }

    @cached_property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Returns the changes that make each architecture, by its name; `label` says in words what it is."""
        variants: Mapping[str, Mapping[str, Any]] = self._experiment["variants"]
        return {LEARNED if name == MAIN else name: dict(changes) for name, changes in variants.items()}

    def enter(self, names: Collection[str] = ()) -> None:
        """Tunes, trains and scores architectures and baselines, and writes a card for each.

        Args:
            names: architectures, or `baselines` for all of these; empty for everything.

        Raises:
            CostbenchError: for an unknown name, or what a stage raises.
        """
        known = {BASELINE_GROUP: {}, **self.variants}
        for name in names:
            choose(known, name, "architecture")
        split.run(self._write("split", self._sections))
        for name in known:
            if not names or name in names:
                self.progress(f"{self.data.task.name}: {name}")
                if name == BASELINE_GROUP:
                    self._enter_baselines()
                else:
                    self._enter(name)

    def _enter_baselines(self) -> None:
        about = About("random", _AUTHORS, "runtimes drawn from those of training", code=RANDOM)
        self._write_card("random", about, run_model(RANDOM, self.data))
        changes = {"baselines": True, "variants": {}, "budgets": {}}
        predicted, spec = self._train(BASELINE_GROUP, self._sections, changes), BASELINES
        for name in predicted.predict_s:
            about = About(
                spec[name].title or name,
                _AUTHORS,
                training_s=self._training_s(BASELINE_GROUP, name),
                hardware=model_name(),
                tuning="number of trees, by validation programs" if spec[name].is_boosted else "",
                knows_estimate=spec[name].reads_estimate and self._has_estimate,
            )
            self._write_card(name, about, self._predictions(BASELINE_GROUP, name))

    def _enter(self, name: str) -> None:
        changes = {key: value for key, value in self.variants[name].items() if key != LABEL}
        settings = merge(self._sections["train"][self.task], self._experiment.get("settings", {}))
        sections = self._with_training(merge(settings, changes))
        tuning = self._tune(name, sections)
        chosen = read_best(self._settings_path(name))
        sections = self._with_training(merge(sections["train"][self.task], chosen))
        ((model, predict_s),) = self._train(name, sections, {"variants": {MAIN: {}}}).predict_s.items()
        spec = load_experiment(load_params(self._path(name)), self._name(name)).variants[MAIN].spec
        modules = {path.partition(":")[0].replace(".", "/") + ".py" for path in spec.parts.values()}
        about = About(
            name,
            _AUTHORS,
            str(self.variants[name].get(LABEL, "")),
            link=", ".join(sorted(modules)),
            training_s=self._training_s(name),
            hardware=model_name(),
            tuning=tuning,
            knows_estimate=getattr(spec.net, "residual", "none") != "none" and self._has_estimate,
        )
        self._write_card(name, about, self._predictions(name, model), predict_s)

    def _tune(self, name: str, sections: Mapping[str, Any]) -> str:
        """Runs the sweep of an architecture, unless the test set is fresh; returns in words how it is tuned.

        Raises:
            DataError: on a fresh test set, for an architecture that was not tuned on the suite's own data.
        """
        chosen, swept = self._settings_path(name), sections["sweep"]
        space: Mapping[str, Mapping[str, Any]] = swept["space"][self.task]
        if name != TUNED:
            space = {
                key: values
                for key, values in space.items()
                if key not in _PARTS and _PARTS.isdisjoint(values.get("when", ()))
            }
        swept = {**swept, "tasks": [self.task], "chip": self._chip, "space": {self.task: space}}
        path = self._write(name, {**sections, "sweep": swept})
        section = load_sweep(load_params(path))
        model = section.model.by_task[self.task]
        steps = model.epochs * model.steps_per_epoch
        if not self.data.facts.fresh:
            sweep.run(path, SweepFlags(task=self.task))
            write_bytes(chosen, read_bytes(best_path(self.work / "sweep", self.task)))
            trials = read_bytes(trials_path(self.work / "sweep", self.task))
            write_bytes(chosen.with_suffix(".csv"), trials)
        elif not chosen.is_file():
            expected = "the architecture entered on the suite's own data first"
            raise DataError("missing", where=chosen, expected=expected)
        return f"{section.trials} trials of {steps} steps, by validation programs of {section.split}"

    def _train(self, name: str, sections: Mapping[str, Any], changes: Mapping[str, Any]) -> PredictedModels:
        """Trains an experiment of one architecture, or fits the baselines, and writes what they predict."""
        grid = {"task": self.task, "splits": list(self._splits), "chips": [self._chip], **changes}
        path, experiment = self._path(name), self._name(name)
        self._write(name, {**sections, SECTION: {experiment: grid}})
        train.run(path, experiment)
        trained = digest_file(self.work / "train" / experiment / IDENTITY_FILE)
        key = key_of(self.data.facts.digest, trained, code_digest(predict_experiment))
        note = self._predictions_path(name, "done").with_suffix(".json")

        def predict() -> PredictedModels:
            models = predict_experiment(path, experiment, self.data)
            for model, predictions in models.items():
                write_predictions(self._predictions_path(name, model), predictions, self.data)
            return PredictedModels(key, {model: made.predict_s or 0.0 for model, made in models.items()})

        return Entry(note, key, None).get(PredictedModels, predict)

    def _write_card(self, name: str, about: About, entry: Predictions, predict_s: float = 0.0) -> None:
        """Writes the card of an entry; one of the same predictions on the same data is not scored again."""
        timed = replace(entry, predict_s=predict_s or entry.predict_s)
        path = card_path(self.entries, self.data.task.name, name, self.data.facts.fresh)
        if path.is_file():
            card = read_card(path)
            if (card.digest, card.data_digest) == (entry.digest, self.data.facts.digest):
                write_card(path, replace(card, about=about))
                return
        write_card(path, make_card(self.data, about, timed, score(self.data, timed)))

    def _training_s(self, name: str, baseline: str = "") -> float:
        """Returns the processor time of the trainings of all folds, in seconds; 0 where it is not known."""
        folder = self.work / "machine" / "train" / self._name(name)
        noted: list[Any] = [read_json(path) for path in sorted(folder.glob("*.json"))]
        seconds = [timing.get("core_seconds", {}) for timing in noted]
        return float(sum(part.get(baseline, 0.0) if baseline else part for part in seconds))

    def _with_training(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._sections, "train": {**self._sections["train"], self.task: settings}}

    def _name(self, name: str) -> str:
        """Returns the name of the experiment of an architecture."""
        return f"{self.task}-{name}"

    def _path(self, name: str) -> Path:
        return self.work / "architectures" / f"{self._name(name)}.json"

    def _settings_path(self, name: str) -> Path:
        return self.entries / self.data.task.name / f"{name}.yaml"

    def _predictions_path(self, name: str, model: str) -> Path:
        return self.work / "predictions" / self._name(name) / f"{model}.parquet"

    def _predictions(self, name: str, model: str) -> Predictions:
        return read_predictions(self._predictions_path(name, model), self.data)

    def _write(self, name: str, sections: Mapping[str, Any]) -> Path:
        """Writes the parameter file of an architecture, and returns its path."""
        run = {**sections["run"], "params": str(self._path(name))}
        write_json(self._path(name), {**sections, "run": run})
        return self._path(name)
