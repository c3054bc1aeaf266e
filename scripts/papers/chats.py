"""Makes chats and questions from the manual pages of this machine: what is NAME? The answer is the description in its page."""
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import text
from errors import Failed
from files import write_whole
from lab import Lab

template = "plain"  # needs no special tokens
_name_section = re.compile(r'^\.S[Hh] "?NAME"?\s*\n(.*?)(?=^\.S[Hh])', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Chats:
    train: Path  # token files with masks
    valid: Path
    questions: Path  # items for `lyceum eval --tasks`, from held-out pages
    count: int  # chats for training
    tokens: int  # of these chats
    asked: int  # number of items in `questions`

    def passes(self, lab: Lab, steps: int) -> float:
        """Returns how often this many steps with the lab's batches read the chats for training."""
        return steps * int(lab.base["batch.global"]) * int(lab.base["batch.seq_len"]) / self.tokens


def name_and_description(page: str) -> tuple[str, str] | None:
    """Returns the name and the description in the section NAME of a manual page in the formats man or mdoc; None if they are not
    plain words."""
    section = _name_section.search(page)
    if not section:
        return None
    lines = [line for line in section[1].splitlines() if not line.startswith(('.\\"', "'\\\""))]
    if names := [line[4:] for line in lines if line.startswith(".Nm ")]:  # mdoc
        described = " ".join(line[4:] for line in lines if line.startswith(".Nd "))
        plain = f"{names[0].rstrip(' ,')} \\- {described}"
    else:
        plain = " ".join(re.sub(r"^\.(B|I|BR|IR|RB|RI) ", "", line) for line in lines if not re.match(r"\.($|IX|PP|br|sp|nh|ad|TP|ie|el|if)", line))
    plain = re.sub(r"\\f.|\\s[-+]?\d|\\&|\\/|\\,", "", plain).replace("\\(aq", "'").replace("\\(em", "\\-")
    parts = re.split(r" +(?:\\-|-) +", plain, maxsplit=1)
    if len(parts) < 2:
        return None
    name, described = parts[0].split(",")[0].replace("\\-", "-").strip(), parts[1].replace("\\-", "-").strip()
    plain_words = re.fullmatch(r"[\w.:+-]{2,40}", name) and 8 <= len(described) <= 80 and not re.search(r"\\| - ", described)
    return (name, described) if plain_words else None


def questions(pairs: list[tuple[str, str]], most: int, seed: int) -> list[dict]:
    """Returns items in which the description of a name is among those of three others."""
    drawn = random.Random(seed)
    descriptions = sorted({described for _, described in pairs})
    made = []
    for name, described in drawn.sample(pairs, min(most, len(pairs))):
        choices = [described, *drawn.sample([other for other in descriptions if other != described], 3)]
        drawn.shuffle(choices)
        made.append({"context": f"What is {name}?\n", "choices": choices, "answer": choices.index(described)})
    return made


def collect(most: int, most_held_out: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns names with descriptions for training and held-out ones, from the manual pages of this machine. No held-out name
    or description is also in training."""
    manuals = next(domain for domain in text.domains(Path(__file__).resolve().parents[2]) if domain.name == "manuals")
    parts: dict[bool, dict[str, str]] = {False: {}, True: {}}
    for _, page, held_out in text.texts(manuals):
        if (found := name_and_description(page)) and len(parts[held_out]) < (most_held_out if held_out else most):
            parts[held_out].setdefault(*found)
        if len(parts[False]) == most and len(parts[True]) == most_held_out:
            break
    trained = set(parts[False].values())
    held_out = sorted((name, described) for name, described in parts[True].items() if name not in parts[False] and described not in trained)
    if len({described for _, described in held_out}) < 20:
        raise Failed(f"the manual pages of this machine have {len(held_out)} names with a description that are held out and not in training: at least 20 "
                     "with different descriptions are needed", 3)
    return sorted(parts[False].items()), held_out


def write(lab: Lab, name: str, questions_file: str, make: Callable[[], tuple[list, list, list]]) -> Chats:
    """Makes token files of chats and a file of items in the folder of the corpus unless they exist; `NAME.json` is written last.
    make: returns pairs of a user's text and the answer for training, held-out pairs, and items."""
    folder = lab.corpus.folder
    record = folder / f"{name}.json"
    if not record.exists() or "questions" not in json.loads(record.read_text()):
        trained, held_out, items = make()
        for part, pairs in (("train", trained), ("valid", held_out)):
            source = folder / f"{name}-{part}.jsonl"
            write_whole(source, "".join(json.dumps({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}) + "\n"
                                        for asked, answer in pairs))
            lab.program.run("tokenize", "--input", str(source), "--chat", template, "--tokenizer", str(lab.corpus.tokenizer), "--output",
                            str(folder / f"{name}-{part}"))
            source.unlink()
        write_whole(folder / questions_file, "".join(json.dumps(item) + "\n" for item in items))
        write_whole(record, json.dumps({"chats": len(trained), "questions": len(items)}) + "\n")
    tokens = json.loads((folder / f"{name}-train.json").read_text())["tokens"]
    numbers = json.loads(record.read_text())
    return Chats(folder / f"{name}-train", folder / f"{name}-valid", folder / questions_file, numbers["chats"], tokens, numbers["questions"])


def prepare(lab: Lab, most: int = 4000, most_held_out: int = 400) -> Chats:
    """Makes chats about manual pages in the folder of the corpus unless they exist."""
    def make():
        trained, held_out = collect(most, most_held_out)
        asked = lambda pairs: [(f"What is {name}?", described) for name, described in pairs]
        return asked(trained), asked(held_out), questions(held_out, most_held_out, 1)
    return write(lab, "manual-chats", "manual-questions.jsonl", make)
