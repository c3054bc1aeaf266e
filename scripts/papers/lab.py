"""Trains and evaluates many small models on the cores of this machine, each once.

A model has a name and configuration keys. Each run, of a model with a seed, has a folder whose name contains the model and a
digest of everything that determines the result. A finished run is not repeated, and an interrupted one resumes from its
checkpoint. As many runs are trained at the same time as there are cores. Each uses one; those with run.device=cuda share the GPU.
"""
import configparser
import functools
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import h5py
import numpy as np

import machine
from errors import Failed
from files import write_whole
from program import Program
from text import Corpus

Keys = dict[str, object]  # "section.key" → value


@dataclass(frozen=True)
class Model:
    """A model of the lab. keys: those that differ from the lab's base. source: if given, the model is made from a run of this
    model by `lyceum convert` with the arguments `transform`; its configuration then begins with that of the source, and with
    run.steps = 0 it is not trained further."""

    name: str
    keys: Keys = field(default_factory=dict)
    source: "Model | None" = None
    transform: tuple[str, ...] = ()


class Lab:
    """The models in a folder. eval_batches: batches of held-out text that an evaluation reads per domain; 0: all text."""

    def __init__(self, program: Program, folder: Path, corpus: Corpus, base: Keys, seeds: list[int], cores: int, eval_batches: int = 0):
        self.program, self.folder, self.corpus, self.cores = program, folder, corpus, cores
        self.base, self.seeds, self.eval_batches = base, seeds, eval_batches
        self.steps = 0  # steps of a model that does not set run.steps
        self.device = base["run.device"]
        self.on_device = f"--run.device={self.device}"  # for commands that do not use the device of training
        self._evaluated = threading.Lock()  # protects the files of evaluations

    @property
    def routing_every(self) -> int:
        """The number of steps per record of the routing log."""
        return max(1, self.steps // 60)

    # --- names and places

    def keys_of(self, model: Model, seed: int) -> Keys:
        """Returns all keys of the configuration, except for run.dir and those that determine how often something is written."""
        keys = {} if model.source else self.base | {"optim.warmup_steps": self.steps // 10}
        keys |= {"run.steps": self.steps, "run.seed": seed}
        keys |= {"data.train": self.corpus.train(), "data.valid": self.corpus.valid(),
                 "data.tokenizer": self.corpus.tokenizer}
        return keys | model.keys

    def _digest(self, model: Model, seed: int) -> str:
        keys = {key: str(value) for key, value in self.keys_of(model, seed).items()}
        source = self._digest(model.source, seed) if model.source else ""
        text = json.dumps([sorted(keys.items()), self.corpus.digest, source, model.transform])
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def directory(self, model: Model, seed: int) -> Path:
        return self.folder / "models" / f"{model.name}-{self._digest(model, seed)}"

    def configuration(self, model: Model) -> str:
        """Returns the configuration as INI, without seed and folders; for a converted model, the keys that differ from its
        source."""
        sections: dict[str, list[str]] = {}
        for key, value in self.keys_of(model, self.seeds[0]).items():
            section, name = key.split(".", 1)
            if key != "run.seed":
                sections.setdefault(section, []).append(f"{name} = {value}".replace(f"{self.corpus.folder}/", ""))
        made = f"; lyceum convert {self._transform_text(model)}\n" if model.source else ""
        return made + "\n".join("\n".join([f"[{section}]", *lines]) for section, lines in sections.items())

    def _transform_text(self, model: Model) -> str:
        words = [Path(word).name if word.startswith("/") else word for word in model.transform]
        return " ".join([words[0], model.source.name, *words[1:]])

    # --- what is done

    def train(self, models: list[Model]) -> None:
        """Trains every model with every seed. A model's source is trained first."""
        if sources := [model.source for model in models if model.source]:
            self.train(sources)
        jobs = [(model, seed) for model in _each_once(models) for seed in self.seeds if not self._trained(model, seed)]
        jobs.sort(key=lambda job: self._steps(*job), reverse=True)  # the longest first, so that no core waits for them at the end
        if jobs:
            print(f"{'training':<10} {len(jobs)} models on {self.machine}", flush=True)
            self._together("training", [lambda model=model, seed=seed: self._train(model, seed) for model, seed in jobs],
                           lambda: [self._steps_done(model, seed) for model, seed in jobs], sum(self._steps(*job) for job in jobs))

    def evaluate(self, wanted: list[tuple[Model, int, tuple[str, ...]]]) -> dict:
        """`lyceum eval --json` on the held-out text of (model, seed, arguments). Returns the results under
        (model's name, seed, arguments)."""
        by_name = {(model.name, seed, arguments): model for model, seed, arguments in wanted}
        missing = [(model, *key[1:]) for key, model in by_name.items() if self._known(model, *key[1:]) is None]
        if missing:
            self._together("evaluating", [lambda want=want: self._evaluate(*want) for want in missing])
        return {key: self._known(model, *key[1:]) for key, model in by_name.items()}

    def losses(self, models: list[Model], *arguments: str) -> dict[str, list[float]]:
        """Returns the held-out losses of each model by name: one per seed, nats per token."""
        results = self.evaluate([(model, seed, arguments) for model in models for seed in self.seeds])
        return {model.name: [results[model.name, seed, arguments]["loss"] for seed in self.seeds] for model in models}

    def scores(self, models: list[Model], *names: str) -> dict[str, list[float]]:
        """Returns the accuracies of each model by name, one per seed, in percent: on the cloze items from the held-out text of
        these domains; without names, of all domains."""
        arguments = ("--tasks", *map(str, self.corpus.items(*names)))
        return {name: [100 * sum(task["acc"] * task["items"] for task in tasks) / sum(task["items"] for task in tasks) for tasks in of]
                for name, of in self.tasks(models, arguments).items()}

    def tasks(self, models: list[Model], arguments: tuple[str, ...]) -> dict[str, list[list[dict]]]:
        """Returns the results of `lyceum eval --tasks` of each model by name: one list of files per seed."""
        results = self.evaluate([(model, seed, arguments) for model in models for seed in self.seeds])
        return {model.name: [results[model.name, seed, arguments]["tasks"] for seed in self.seeds] for model in models}

    def bits_per_byte(self, models: list[Model]) -> dict[str, list[float]]:
        """Returns the bits per byte of each model by name, one per seed, on the held-out text of its own configuration. Models
        that were not evaluated on it without changes, or whose text has a mask, are left out."""
        known = {model.name: [(self._known(model, seed, ()) or {}).get("bits_per_byte") for seed in self.seeds] for model in models}
        return {name: bits for name, bits in known.items() if None not in bits}

    def metrics(self, model: Model, seed: int) -> list[dict]:
        with open(self.directory(model, seed) / "metrics.jsonl") as lines:
            return [json.loads(line) for line in lines]

    def parameters(self, model: Model) -> dict[str, int]:
        """Returns the numbers of parameters, `total`, `activated`, …, as `lyceum plan` counts them."""
        config = self.directory(model, self.seeds[0]) / "config.ini"
        return json.loads(self.program.run("plan", "--config", str(config), "--ranks", "1", "--json"))["parameters"]

    def commits(self, models: list[Model]) -> list[str]:
        """Returns the commits of the programs that trained these models."""
        starts = (json.loads(line) for model in models for seed in self.seeds for line in open(self.directory(model, seed) / "starts.jsonl"))
        return sorted({start["program"].split("commit ")[-1].rstrip(")") for start in starts})

    @functools.cached_property
    def machine(self) -> str:
        """The name of this machine's processor, and of its GPU if models are trained on it."""
        return machine.name_of(self.device)

    def machines(self, models: list[Model]) -> list[str]:
        """Returns the machines that trained these models. Runs of earlier versions do not name theirs, which is taken to be this one."""
        trained = {(self.directory(model, seed) / "trained").read_text().strip() for model in models for seed in self.seeds}
        return sorted({name or self.machine for name in trained})

    def median_step_seconds(self, model: Model, seed: int) -> float:
        """Returns the median time of a step of a run. Other runs and programs on the machine affect it."""
        return statistics.median(line["step_ms"] for line in self.metrics(model, seed)) / 1000

    def step_seconds(self, model: Model) -> float:
        """Returns the core time of a step: the median of the fastest seed. (A sum over all steps would include pauses.)"""
        return min(self.median_step_seconds(model, seed) for seed in self.seeds)

    def seconds(self, models: list[Model]) -> float:
        """Returns the core time of training all runs of these models, estimated from step_seconds()."""
        return sum(self.step_seconds(model) * sum(len(self.metrics(model, seed)) for seed in self.seeds) for model in models)

    def routing(self, model: Model, seed: int, what: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the steps of the routing log's records, and one dataset of each layer's FFN: `counts`, `mean_probability`, …"""
        with h5py.File(self.directory(model, seed) / "routing.h5") as file:
            return file["step"][:], [file["layers"][name][what][:] for name in sorted(file["layers"])]

    def tensors(self, model: Model, seed: int, names: list[str]) -> dict[str, np.ndarray]:
        """Returns tensors of the run's newest checkpoint by name."""
        checkpoints = self.directory(model, seed) / "checkpoints"
        with h5py.File(checkpoints / (checkpoints / "LATEST").read_text().strip() / "index.h5") as file:
            return {name: file[name][...] for name in names}

    def output(self, model: Model, seed: int, name: str, *arguments: str) -> Path:
        """Returns the file `name` in the run's folder. If it does not exist, `lyceum ARGUMENTS FILE` writes it."""
        file = self.directory(model, seed) / name
        if not file.exists():
            partial = file.with_name("partial-" + name)
            partial.unlink(missing_ok=True)
            self.program.run(*arguments, str(partial))
            partial.replace(file)
        return file

    def times(self, models: list[Model], seed: int, rounds: int, prompt: str, tokens: int) -> dict[str, dict[str, float]]:
        """Returns the milliseconds of the prompt and of a decoded token, "prompt" and "token", by model: the medians of `rounds`
        measurements in turn."""
        def measure(directory: Path) -> dict[str, float]:
            text = self.program.messages("generate", self.on_device, "--checkpoint", str(directory), "--prompt", prompt, "--tokens", str(tokens), "--temperature", "0",
                                         "--timing")
            of_prompt, of_token = re.search(r"prompt +(\d+) tokens in [0-9.]+ s, ([0-9.]+) tokens/s", text), re.search(r"([0-9.]+) ms per token", text)
            if not (of_prompt and of_token):
                raise Failed(f"{directory} has no time per token: its first token after {prompt[:40]!r} ends the text")
            return {"prompt": 1000 * int(of_prompt[1]) / float(of_prompt[2]), "token": float(of_token[1])}
        return self._medians("times.json", models, seed, rounds, measure)

    def batch_times(self, models: list[Model], seed: int, rounds: int, sequences: int) -> dict[str, dict[str, float]]:
        """Returns the time and the memory of a forward pass of one batch of held-out text, by model: "milliseconds",
        "tokens_per_second", "megabytes" of tensors and "process_megabytes", the medians of `rounds` measurements in turn."""
        def measure(directory: Path) -> dict[str, float]:
            timing = json.loads(self.program.run("eval", self.on_device, "--checkpoint", str(directory), f"--data.valid={self.corpus.folder / 'all-valid'}", "--batches", "1",
                                                 f"--batch.global={sequences}", f"--batch.micro={sequences}", "--timing", "--json"))["timing"]
            return {"milliseconds": 1000 * timing["seconds"], "tokens_per_second": timing["tokens_per_second"],
                    "megabytes": timing["memory_peak_bytes"] / 1e6, "process_megabytes": timing["resident_peak_bytes"] / 1e6}
        return self._medians(f"times-of-{sequences}.json", models, seed, rounds, measure)

    def seconds_a_step(self, model: Model) -> float:
        """Returns the seconds per step, measured once per program with a few steps, while `cores` such runs are trained at the
        same time."""
        record = self.folder / "speed.json"
        known = json.loads(record.read_text()) if record.exists() else {}
        key = f"{model.name}-{self._digest(Model(model.name, {**model.keys, 'run.steps': 6}), 1)}, {self.cores} at a time, {self.program.version}"
        if key not in known:
            def steps(number):
                scratch = self.folder / f"speed-{number}"
                shutil.rmtree(scratch, ignore_errors=True)  # left by an interrupted measurement
                keys = {**self.base, **model.keys, "run.steps": 6, "run.seed": 1, "data.train": self.corpus.train(),
                        "data.tokenizer": self.corpus.tokenizer}
                config = _write_config(scratch, keys)
                self.program.run("train", "--config", str(config), "--checkpoint.resume=none", "--eval.every=0")
                times = [json.loads(line)["time"] for line in open(scratch / "metrics.jsonl")]
                shutil.rmtree(scratch)
                return (times[-1] - times[1]) / (len(times) - 2)
            measured = []
            self._together("timing", [lambda number=number: measured.append(steps(number)) for number in range(self.cores)])
            known[key] = max(measured)
            write_whole(record, json.dumps(known, indent=1) + "\n")
        return known[key]

    # --- parts

    def _trained(self, model: Model, seed: int) -> bool:
        return (self.directory(model, seed) / "trained").exists()

    def _train(self, model: Model, seed: int) -> None:
        directory = self.directory(model, seed)
        config = directory / "config.ini"
        keys = self.keys_of(model, seed)
        rhythm = {"eval.every": max(10, self.steps // 20), "checkpoint.every": max(1, self.steps // 4), "checkpoint.keep": 1,
                  "routing.every": self.routing_every}
        if model.source:
            if not config.exists():
                shutil.rmtree(directory, ignore_errors=True)  # left by an interrupted conversion
                source = self.directory(model.source, seed)
                self.program.run("convert", model.transform[0], str(source), self.on_device, "--out", str(directory), *model.transform[1:])
            own = [f"--{key}={value}" for key, value in (rhythm | keys | {"run.dir": directory, "run.device": self.device}).items()]
        else:
            _write_config(directory, rhythm | keys)
            own = []
        if keys["run.steps"]:
            self.program.run("train", "--config", str(config), *own)
        write_whole(directory / "trained", f"{self.machine}\n")

    def _steps(self, model: Model, seed: int) -> int:
        return self.keys_of(model, seed)["run.steps"]

    def _steps_done(self, model: Model, seed: int) -> int:
        """Returns the number of a run's steps that are done."""
        if self._trained(model, seed):
            return self._steps(model, seed)
        try:
            with open(self.directory(model, seed) / "metrics.jsonl", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                return json.loads(file.read().splitlines()[-1])["step"]
        except (OSError, ValueError, IndexError):
            return 0

    def _medians(self, name: str, models: list[Model], seed: int, rounds: int, measure: Callable[[Path], dict[str, float]]) -> dict[str, dict[str, float]]:
        """Returns the medians of the figures that measure(folder of the run) returns, by model, over `rounds` measurements in
        turn, with nothing else trained or evaluated. They are measured once for each seed and program, and stored in the file
        `name`."""
        file = self.directory(models[0], seed) / name
        known = json.loads(file.read_text()) if file.exists() else {}
        keys = {model.name: f"{self.directory(model, seed).name}, {self.program.version}" for model in models}
        if not set(keys.values()) <= set(known):
            measured: dict[str, list[dict[str, float]]] = {model.name: [] for model in models}
            for _ in range(rounds):
                for model in models:
                    measured[model.name].append(measure(self.directory(model, seed)))
            known = {keys[name]: {what: statistics.median(one[what] for one in of) for what in of[0]} for name, of in measured.items()}
            write_whole(file, json.dumps(known, indent=1) + "\n")
        return {name: known[key] for name, key in keys.items()}

    def _evals(self, model: Model, seed: int) -> Path:
        return self.directory(model, seed) / "evaluations.json"

    def _known(self, model: Model, seed: int, arguments: tuple[str, ...]) -> dict | None:
        file = self._evals(model, seed)
        return json.loads(file.read_text()).get(" ".join(arguments)) if file.exists() else None

    def _evaluate(self, model: Model, seed: int, arguments: tuple[str, ...]) -> None:
        batches = () if "--tasks" in arguments else ("--batches", str(self.eval_batches))
        result = json.loads(self.program.run("eval", self.on_device, "--checkpoint", str(self.directory(model, seed)), *batches, "--json", *arguments))
        if batches and (result["loss"] is None or not math.isfinite(result["loss"])):
            raise Failed(f"{self.directory(model, seed)} has a loss of {result['loss']}: its training diverged; see its metrics.jsonl")
        with self._evaluated:
            file = self._evals(model, seed)
            known = json.loads(file.read_text()) if file.exists() else {}
            write_whole(file, json.dumps(known | {" ".join(arguments): result}, indent=1) + "\n")

    def _together(self, what: str, jobs: list, steps_done: Callable[[], list[int]] | None = None, steps: int = 0) -> None:
        """Calls functions, as many at the same time as there are cores, and prints a line every half minute and at the end. The
        line states the share of the functions that have returned, or with `steps_done` that of all `steps`."""
        start, last = time.monotonic(), 0.0
        begun = steps_done() if steps > 0 else None
        with ThreadPoolExecutor(self.cores) as pool:
            pending = {pool.submit(job) for job in jobs}
            done: set = set()
            try:
                while pending:
                    finished, pending = wait(pending, timeout=1, return_when=FIRST_EXCEPTION)
                    done |= finished
                    for future in finished:
                        future.result()
                    seconds = time.monotonic() - start
                    if seconds - last >= 30 or (not pending and seconds > 5):
                        last = seconds
                        if begun:  # a resumed run repeats the steps since its last checkpoint
                            begun = [min(numbers) for numbers in zip(begun, steps_done())]
                        share = (sum(steps_done()) - sum(begun)) / max(1, steps - sum(begun)) if begun else len(done) / len(jobs)
                        left = f", about {_clock(seconds / share - seconds)} left" if pending and share > 0.005 else ""
                        print(f"{what:<10} {len(done)} of {len(jobs)} done, {100 * share:.0f} % in {_clock(seconds)}{left}", flush=True)
            except BaseException:
                for future in pending:
                    future.cancel()
                if not self.program.stopping:
                    self.program.stop()
                raise


def _each_once(models: list[Model]) -> list[Model]:
    return list({model.name: model for model in models}.values())


def _clock(seconds: float) -> str:
    minutes = math.ceil(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02}:{math.ceil(seconds) % 60:02}"


def _write_config(directory: Path, keys: Keys) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    sections = configparser.RawConfigParser()
    sections.optionxform = str
    for key, value in ({"run.dir": directory} | keys).items():
        section, name = key.split(".", 1)
        if section not in sections:
            sections.add_section(section)
        sections.set(section, name, str(value))
    config = directory / "config.ini"
    with open(config, "w") as file:
        sections.write(file)
    return config
