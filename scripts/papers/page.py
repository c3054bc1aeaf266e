"""Writes docs/papers/NAME.md with its pictures and its figures (NAME.json), and the table of all claims."""
import hashlib
import json
import math
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # files only, no display
import matplotlib.pyplot as plt  # noqa: E402

from compare import Claim, Difference, Spread, seeds_to_see  # noqa: E402

order_of_verdicts = ["opposite", "not seen", "reproduced"]  # claims that were not reproduced come first


@dataclass
class Page:
    paper: str  # title, and tables or figures in it
    introduction: str
    claims: list[Claim] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)
    figures: dict[str, plt.Figure] = field(default_factory=dict)  # file name -> figure
    results: dict = field(default_factory=dict)  # values in NAME.json in addition to claims; "bits_per_byte" replaces the general section
    models: list = field(default_factory=list)  # models of the lab, whose configurations are shown

    def section(self, heading: str, *parts: str) -> None:
        self.sections.append("\n\n".join([f"## {heading}", *parts]))

    def figure(self, name: str, caption: str, figure) -> str:
        """Adds a figure, and returns the line of text that shows it."""
        self.figures[name] = figure
        return f"![{caption}]({name})"


def table(headings: list[str], rows: list[list], texts: int = 1) -> str:
    """Returns a table. The first `texts` columns contain text, the others numbers."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [headings, *rows]]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(headings))]
    aligned = [[cell.ljust(width) if column < texts else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))]
               for row in cells]
    rule = [("-" * width if column < texts else "-" * (width - 1) + ":") for column, width in enumerate(widths)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [aligned[0], rule, *aligned[1:]])


def subplots(columns: int = 1, height: float = 3.6):
    figure, axes = plt.subplots(1, columns, figsize=(5.4 * columns, height), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _scripts() -> str:
    """Returns the commit of this folder."""
    git = lambda *words: subprocess.run(["git", *words, "--", "."], cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    return (git("log", "-1", "--format=%h", "--abbrev=12") or "unknown") + (" and changes" if git("status", "--porcelain") else "")


def _duration(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _each(seeds: list[float]) -> str:
    return ", ".join(f"{difference:+.3f}" for difference in seeds)


def write(page: Page, name: str, title: str, out: Path, lab, command: str) -> Path:
    """Writes a page and its figures. Returns the path of the page. lab: the one that trained page.models. A repetition with
    other seeds has no page, so the path of its figures is returned; the table of all claims shows it next to the first one."""
    seconds = lab.seconds(page.models)
    if "bits_per_byte" not in page.results and (bits := lab.bits_per_byte(page.models)):
        page.section("Bits per byte", "Of all held-out text of the model's configuration. They do not depend on the tokenizer, unlike nats per token.",
                     table(["model", "bits per byte, mean ± sd"], [[name, Spread.of(values)] for name, values in bits.items()]))
        page.results["bits_per_byte"] = bits
    out.mkdir(parents=True, exist_ok=True)
    claims = sorted(page.claims, key=lambda claim: order_of_verdicts.index(claim.verdict))
    configurations = "\n\n".join(f"```ini\n; {model.name}\n{lab.configuration(model)}\n```" for model in page.models)
    tokens = lab.steps * int(lab.base["batch.global"]) * int(lab.base["batch.seq_len"])
    made = {"date": date.today().isoformat(), "commit": ", ".join(lab.commits(page.models)), "scripts": _scripts(),
            "machine": ", ".join(lab.machines(page.models)), "device": lab.device,
            "steps": lab.steps, "tokens": tokens, "seeds": len(lab.seeds), "seconds_of_training": round(seconds), "command": command,
            "text": lab.corpus.tokens, "held_out": lab.corpus.held_out(), "text_digest": lab.corpus.digest,
            "configurations": hashlib.sha256(configurations.encode()).hexdigest()[:8]}
    figures = json.dumps({"made": made, "claims": [asdict(claim) for claim in claims], "results": page.results}, indent=1) + "\n"
    if lab.seeds[0] != 1:  # seeds of pages begin with 1
        file = out / f"{name}-seeds-{lab.seeds[0]}-{lab.seeds[-1]}.json"
        file.write_text(figures)
        return file
    for file, figure in page.figures.items():
        figure.savefig(out / file, dpi=110)
        plt.close(figure)
    domains = ", ".join(f"{name} {count / 1e6:.1f} M" for name, count in lab.corpus.tokens.items())
    text = [f"# {title}", page.introduction,
            table(["claim", "paper", "here", "each seed", "verdict"],
                  [[claim.text, claim.paper, claim.ours, _each(claim.seeds), f"**{claim.verdict}**"] for claim in claims]),
            f"Claims and differences are mean ± half of the 95 % confidence interval over {counted(len(lab.seeds), 'seed')}, paired by seed; "
            "losses and other values are mean ± standard deviation. [README.md](README.md) defines the verdicts.", *page.sections]
    text += ["## How this page was made",
             f"`{command}`, on {made['date']}. The models were trained on {made['machine']} by the program of commit {made['commit']}; the page was made by "
             f"scripts of commit {made['scripts']}. {lab.steps} steps (pre-training) of {lab.base['batch.global']} sequences of {lab.base['batch.seq_len']} "
             f"tokens ({tokens / 1e6:.2f} M tokens) for each model and seed, unless its configuration differs; all steps together take {_duration(seconds)} of "
             f"{'one core' if lab.device == 'cpu' else 'processes that share the GPU'} (median steps of the fastest seed). Text "
             f"{made['text_digest'][:8]}: {sum(lab.corpus.tokens.values()) / 1e6:.1f} M tokens for training ({domains}), {made['held_out'] / 1e6:.2f} M held "
             f"out. Paper: {page.paper}.",
             "Configurations, without seed and folders:", configurations]
    (out / f"{name}.md").write_text("\n\n".join(text) + "\n")
    (out / f"{name}.json").write_text(figures)
    return out / f"{name}.md"


def _repeated(out: Path, name: str, made: dict) -> list[tuple[str, str, list[Claim]]]:
    """Returns the repetitions of a page with other seeds: the seeds, the digest of the text, and the claims. made: the page's record
    of how it was made. Names repetitions whose configurations differ, and leaves them out."""
    found = []
    for file in sorted(out.glob(f"{name}-seeds-*.json")):
        first, last = file.stem.split("-")[-2:]
        page = json.loads(file.read_text())
        if page["made"].get("configurations") != made.get("configurations"):
            print(f"{file} is left out, since its models are not configured as those of {name}.md; to compare them, make both again", file=sys.stderr)
            continue
        found.append((f"{first} to {last}", page["made"]["text_digest"][:8], [Claim(**fields) for fields in page["claims"]]))
    return found


def _seeds_needed(pages: dict[str, dict], experiments: dict) -> str:
    """Returns the table of the seeds that claims which are not seen would need, those with the least training first."""
    rows = []
    for name, page in pages.items():
        hours = page["made"]["seconds_of_training"] / page["made"]["seeds"] / 3600 if _on_cpu(page) else experiments[name].core_hours or math.inf
        for claim in (Claim(**fields) for fields in page["claims"]):
            if claim.verdict != "not seen" or len(claim.seeds) < 2:
                continue
            deviation, effect, here = statistics.stdev(claim.seeds), claim.effect_of_paper(), statistics.fmean(claim.seeds)
            needed = [None if each is None else seeds_to_see(each, deviation) or math.inf for each in (effect, here)]
            shown = lambda count: "" if count is None else "over 1,000" if math.isinf(count) else str(count)
            least = min(count for count in needed if count is not None)
            rows.append((least * hours, [f"[{name}]({name}.md): {claim.text}", "" if effect is None else f"{effect:+.3f}", f"{here:+.3f} ± {deviation:.3f}",
                                         shown(needed[0]), shown(needed[1]), "" if math.isinf(hours) else f"{hours:.1f}"]))
    return table(["claim", "paper, nats", "here, mean ± sd", "seeds for the paper's effect", "seeds for that measured here", "core-hours per seed"],
                 [row for _, row in sorted(rows, key=lambda each: each[0])])


def _hours(number: float) -> str:
    """Returns estimated hours as text: a digit behind the point below 1, none above."""
    return f"{number:.0f}" if number >= 1 else f"{number:.1f}"


@dataclass(frozen=True)
class ToRun:
    """An experiment without a page, or whose page is older than its script."""

    rank: int  # 0: the models of the page differ from those of the paper; 1; 2: optional
    core_hours: float  # of training and evaluation of all `seeds`
    title: str
    name: str
    state: str
    seeds: int = 3  # that it needs

    def hours(self, seeds: int) -> float:
        return self.core_hours * seeds / self.seeds


def to_run(pages: dict[str, dict], experiments: dict, full_steps: int) -> list[ToRun]:
    """Returns the experiments without a page, and those whose page is older than its script, with "made" / "older" in its JSON, which
    says what the script has in addition, with a note (write_summary()), or with too few seeds for a claim, in the order in which they
    should run."""
    found = []
    for name, experiment in experiments.items():
        made = pages[name]["made"] if name in pages else {}
        few = bool(made) and not {"older", "note"} & set(made)  # only its seeds may be too few
        if few and made["seeds"] >= experiment.seeds:
            continue
        on_cpu = bool(made) and _on_cpu(pages[name])
        training = experiment.core_hours or (made["seconds_of_training"] / made["seeds"] / made["steps"] * full_steps / 3600 if on_cpu else 0)
        changed = f"{experiment.seeds} seeds, for {experiment.seeds_for}" if few else made.get("older", made.get("note"))
        rank = 0 if "note" in made else 2 if few or changed == "bits per byte" else 1
        state = "defined, not run yet" if not made else f"optional: {changed}" if rank == 2 else f"the script has changed: {changed}"
        seeds = experiment.seeds if few else 3
        found.append(ToRun(rank, seeds * training * (1 + experiment.evaluating()), experiment.title, name, state, seeds))
    return sorted(found, key=lambda each: (each.rank, each.core_hours))


def fitting(found: list[ToRun], hours: float, seeds: int) -> list[str]:
    """Returns the names of the first experiments of to_run() that together take up to this many core-hours with this number of seeds,
    without those that need more seeds."""
    names, total = [], 0.0
    for each in found:
        if each.seeds > seeds:
            continue
        total += each.hours(seeds)
        if total > hours:
            break
        names.append(each.name)
    return names


def _to_run(pages: dict[str, dict], experiments: dict, full_steps: int) -> str:
    """Returns the section on experiments that are to run; empty if there are none."""
    found = to_run(pages, experiments, full_steps)
    if not found:
        return ""
    rows, total = [], 0.0
    for each in found:
        total += each.core_hours
        rows.append([f"{each.title} (`{each.name}`)", each.state, _hours(each.core_hours), _hours(total)])
    return "\n\n".join([
        "## To run", "Experiments that are defined, with all their models, evaluations, claims and tables, but were not run yet, and pages to be made again, "
        f"with the estimated core-hours of training and evaluation of three seeds (or of as many as are stated) with {full_steps:,} updates: about "
        f"{_hours(total)} in all. They follow "
        "from the times of existing pages, which were made on different machines, and from the FLOPs of models that no page has; an evaluation is taken as "
        "a third of the time of training on as many tokens. Models that several pages share count for each of them, so all together take less. "
        "Pages with other models than the paper's come first, then those that need the least; the last ones are optional, as they would only add bits per byte, or seeds for one claim. "
        "`scripts/papers/run.sh next --hours H` runs the first rows whose sum is at most H core-hours; each page that is done leaves the table, so a second "
        "call takes the rows that are then the first, with H core-hours again.",
        table(["experiment", "state", "core-hours", "sum so far"], rows, texts=2)])


def _on_cpu(page: dict) -> bool:
    return page["made"].get("device", "cpu") == "cpu"


def pages_in(out: Path, experiments: dict) -> dict[str, dict]:
    """Returns the JSON of the pages in the folder, by experiment."""
    return {name: json.loads(file.read_text()) for name in experiments if (file := out / f"{name}.json").exists()}


def _mark_older(file: Path, made: dict) -> None:
    """Writes into the page, below its introduction, how it differs from its script: "made" / "older" and "made" / "note" of its JSON."""
    title, introduction, *rest = file.read_text().split("\n\n")
    if rest[0].startswith("**Older than its script.**"):
        del rest[0]
    sentences = [f"In these runs: {made['note']}."] if "note" in made else []
    sentences += [f"The script now also has: {made['older']}."] if "older" in made else []
    if sentences:
        rest.insert(0, " ".join(["**Older than its script.**", *sentences]))
    file.write_text("\n\n".join([title, introduction, *rest]))


def write_summary(out: Path, experiments: dict, base, full_steps: int) -> None:
    """Writes README.md. experiments: page -> experiment. base: the keys that all models share. Missing pages are listed as not run.
    A page whose models are not those of its script has a note, "made" / "note" in its JSON, which says how they differ; pages that
    are older than their script are marked."""
    pages = pages_in(out, experiments)
    for name, page in pages.items():
        _mark_older(out / f"{name}.md", page["made"])
    claims = [Claim(**fields) for page in pages.values() for fields in page["claims"]]
    rows, changing, again, changed, other_texts = [], sum(claim.sign_changes() for claim in claims), 0, 0, set()
    for name, experiment in experiments.items():
        if name not in pages:
            continue
        others = _repeated(out, name, pages[name]["made"])
        note = pages[name]["made"].get("note")
        page_title = f"[{experiment.title}]({name}.md)" + (f" ({note})" if note else "")
        for claim in (Claim(**fields) for fields in pages[name]["claims"]):
            same = [(seeds, other) for seeds, _, of_others in others for other in claim.repetitions(of_others)]
            other_texts.update(text for _, text, _ in others)
            again += len(same)
            changed += sum(other.verdict != claim.verdict for _, other in same)
            verdict = lambda other: other.verdict if other.verdict == claim.verdict else f"**{other.verdict}**"
            rows.append([f"{page_title}: {claim.text}", claim.paper, claim.ours, f"**{claim.verdict}**{' *' if claim.sign_changes() else ''}",
                         "; ".join(f"{other.ours}: {verdict(other)} (seeds {seeds})" for seeds, other in same)])
    texts = {}
    for name, page in pages.items():
        texts.setdefault(page["made"]["text_digest"][:8], []).append(name)
    introduction = (Path(__file__).parent / "summary.md").read_text().strip().format(
        layers=base["model.layers"], hidden=base["model.hidden"], updates=statistics.mode(page["made"]["steps"] for page in pages.values()),
        visible=statistics.median([Difference.of(claim.seeds, [0.0] * len(claim.seeds)).half_width for claim in claims if claim.ours.endswith("nats")]
                                  or [math.nan]),
        tokens=int(base["batch.global"]) * int(base["batch.seq_len"]),
        hours=math.ceil(sum(page["made"]["seconds_of_training"] for page in pages.values() if _on_cpu(page)) / 3600),
        besides="" if all(map(_on_cpu, pages.values())) else ", besides those made on a GPU",
        timed=", ".join(f"`{name}`" for name, experiment in experiments.items() if experiment.timed))
    if len(texts) > 1:  # on machines with other packages
        introduction += " These pages were made from: " + "; ".join(f"text {digest}: {', '.join(of)}" for digest, of in texts.items()) + "."
    seeds = f"\\* The sign of the difference is not the same in every seed ({counted(changing, 'claim')}); each page gives the differences of its seeds."
    if again:
        seeds += f"\n\nWith other seeds, {changed} of {counted(again, 'verdict')} changed (bold in the last column). Their text: {', '.join(sorted(other_texts))}."
    power = (Path(__file__).parent / "seeds_needed.md").read_text().strip()
    (out / "README.md").write_text("\n\n".join([introduction, table(["claim", "paper", "here", "verdict", "other seeds"], rows), seeds, power,
                                                _seeds_needed(pages, experiments), *filter(None, [_to_run(pages, experiments, full_steps)])]) + "\n")
