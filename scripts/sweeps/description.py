"""Reads the description of a sweep, and makes the list of its runs."""
import configparser
import hashlib
import itertools
import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

LONGEST_NAME = 120  # of a folder; file systems allow 255 bytes
SWEEP_KEYS = ("config", "dir", "ranks", "seeds")


class SweepError(Exception):
    """The sweep or its file is wrong; the message says where and how to fix it."""


@dataclass
class SweepRun:
    """One run: `name` is that of its folder; `arguments` are the configuration file, then --section.key=value …"""
    name: str
    folder: Path
    arguments: list[str]
    digest: str = ""  # of its settings: see state.py


@dataclass
class Sweep:
    config: Path  # of every run
    config_time: int  # when it was modified last, ns
    folder: Path
    ranks: int  # of each run on this machine
    runs: list[SweepRun]


def read_sweep(file: str) -> Sweep:
    """Reads a file, .ini or .toml. Raises a SweepError that names the file."""
    try:
        if file.endswith(".toml"):
            sections = read_toml(Path(file).read_text(encoding="utf-8-sig"))
        else:
            sections = read_ini(Path(file).read_text(encoding="utf-8-sig"))
        return make_sweep(sections)
    except OSError as error:
        raise SweepError(f"{file}: {error.strerror}") from error
    except (configparser.Error, tomllib.TOMLDecodeError, UnicodeDecodeError, SweepError) as error:
        raise SweepError(f"{file}: {' '.join(str(error).split())}") from error


# Both readers return {"sweep": {key: [value, …]}, "set": …, "grid": …, "zip": [{key: [value, …]}, …]}, all values as text.


def read_ini(text: str) -> dict:
    parser = configparser.ConfigParser(delimiters="=", comment_prefixes="#;", inline_comment_prefixes=("#", ";"), interpolation=None,
                                       default_section="")
    parser.optionxform = str
    parser.read_string(text)
    sections: dict = {"zip": []}
    for name in parser.sections():
        keys = {key: listed(value, name, key) for key, value in parser[name].items()}
        if name.split()[:1] == ["zip"]:
            sections["zip"].append(keys)
        else:
            sections[name] = keys
    return sections


def listed(value: str, section: str, key: str) -> list[str]:
    if section == "set" or (section == "sweep" and key != "seeds"):  # one value, which may contain commas
        return [value]
    return [part.strip() for part in value.split("|" if "|" in value else ",")]


def read_toml(text: str) -> dict:
    table = tomllib.loads(text)
    zips = table.pop("zip", [])
    if isinstance(zips, dict):
        zips = [zips]
    if not isinstance(zips, list) or not all(isinstance(keys, dict) for keys in zips):
        raise SweepError("zip is not a section: expected [zip] or [[zip]]")
    sections: dict = {"zip": [flattened(keys, "zip") for keys in zips]}
    for name, keys in table.items():
        if not isinstance(keys, dict):
            raise SweepError(f"{name} is outside a section: expected [sweep], [set], [grid] or [zip]")
        sections[name] = flattened(keys, name)
    return sections


def flattened(table: dict, section: str, prefix: str = "") -> dict[str, list[str]]:
    """Returns the keys of a table; those of inner tables as "section.key"."""
    keys: dict[str, list[str]] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            keys |= flattened(value, section, f"{prefix}{name}.")
        elif isinstance(value, list) and section != "set":
            keys[prefix + name] = [text_of(item) for item in value]
        else:
            keys[prefix + name] = [text_of(value)]
    return keys


def text_of(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(text_of, value)) if isinstance(value, list) else str(value)


def make_sweep(sections: dict) -> Sweep:
    for name in sections:
        if name not in ("sweep", "set", "grid", "zip"):
            raise SweepError(f"[{name}]: expected [sweep], [set], [grid] or [zip]")
    about = sections.get("sweep", {})
    for keys in (about, sections.get("set", {}), sections.get("grid", {}), *sections["zip"]):
        for key, values in keys.items():
            if any("\0" in value for value in values):
                raise SweepError(f"{key} has a value with a zero byte")
    config, folder, ranks = about_runs(about)
    grid = dict(sections.get("grid", {}))
    if "seeds" in about:
        if "run.seed" in grid:
            raise SweepError("seeds in [sweep] and run.seed in [grid] are the same: remove one")
        grid["run.seed"] = about["seeds"]
    check_keys([sections.get("set", {}), grid, *sections["zip"]])
    for key, values in grid.items():
        if len(set(values)) < len(values):
            raise SweepError(f"{key} = {', '.join(values)}: a value occurs twice")
    axes = [[{key: value} for value in values] for key, values in grid.items()]
    axes = axes_of_zips(sections["zip"]) + axes
    fixed = {key: values[0] for key, values in sections.get("set", {}).items()}
    choices = [{key: value for part in parts for key, value in part.items()} for parts in itertools.product(*axes)]
    runs = []
    for name, choice in zip(names_of(choices), choices, strict=True):
        settings = {**fixed, **choice, "run.dir": str(folder / name)}
        runs.append(SweepRun(name, folder / name, [about["config"][0], *(f"--{key}={value}" for key, value in settings.items())]))
    return Sweep(config, config.stat().st_mtime_ns, folder, ranks, runs)


def about_runs(about: dict[str, list[str]]) -> tuple[Path, Path, int]:
    """Returns config, dir and ranks of [sweep]."""
    for key in about:
        if key not in SWEEP_KEYS:
            near = get_close_matches(key, SWEEP_KEYS, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(SWEEP_KEYS)}"
            raise SweepError(f"{key} in [sweep]: {hint}")
    about = {"ranks": ["1"], **about}
    for key in ("config", "dir", "ranks"):
        if len(about.get(key, [])) != 1 or not about[key][0]:
            raise SweepError(f"[sweep] needs {key} = … with one value")
    config = Path(about["config"][0])
    if not config.is_file():
        raise SweepError(f"config = {config}: no such file")
    folder = Path(about["dir"][0])
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise SweepError(f"dir = {folder}: {existing} is not a folder")
    ranks = about["ranks"][0]
    if not re.fullmatch(r"[1-9]\d{0,5}", ranks):
        raise SweepError(f"ranks = {ranks}: must be a whole number of 1 or more")
    return config, folder, int(ranks)


def check_keys(sections: list[dict[str, list[str]]]) -> None:
    seen: set[str] = set()
    for keys in sections:
        for key, values in keys.items():
            if not re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", key):
                raise SweepError(f"{key}: expected section.key, such as optim.lr")
            if key == "run.dir":
                raise SweepError("run.dir: each run gets its own folder in the sweep's dir: remove the key")
            if key in seen:
                raise SweepError(f"{key} is given twice: keep it in one of [set], [grid], [zip] and seeds")
            seen.add(key)
            if not values or "" in values:
                raise SweepError(f"{key} has an empty value: a list such as 1, 2 is needed")


def axes_of_zips(zips: list[dict[str, list[str]]]) -> list[list[dict[str, str]]]:
    axes = []
    for keys in zips:
        lengths = {key: len(values) for key, values in keys.items()}
        if len(set(lengths.values())) > 1:
            raise SweepError("[zip]: lists of different lengths: " + ", ".join(f"{key} has {n}" for key, n in lengths.items()))
        if keys:
            axes.append([dict(zip(keys, values, strict=True)) for values in zip(*keys.values(), strict=True)])
    return axes


def _in_name(value: str) -> str:
    """Returns the value with "-" for characters that names cannot have, without such a "-" at its ends."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", " ", value).strip(" ").replace(" ", "-") or "-"


def names_of(choices: list[dict[str, str]]) -> list[str]:
    """Returns the folder names of the runs: "lr=1e-3,top_k=2,seed=1", with the whole key where the last part is ambiguous."""
    keys = list(choices[0])
    last = [key.split(".")[1] for key in keys]
    short = {key: word if last.count(word) == 1 else key for key, word in zip(keys, last, strict=True)}
    names = []
    for choice in choices:
        parts = [f"{short[key]}={_in_name(value)}" for key, value in choice.items()]
        name = ",".join(parts) or "run"
        if len(name) > LONGEST_NAME:
            digest = hashlib.sha256(repr(sorted(choice.items())).encode()).hexdigest()[:8]
            name = f"{name[:LONGEST_NAME - 9]}-{digest}"
        names.append(name)
    for name in names:
        if names.count(name) > 1:
            raise SweepError(f"two runs would have the folder {name}: their values differ only in characters that names cannot have")
    return names
