"""Makes a classification task from the text of this machine: of which domain are these words? The answer is its name."""
import random
from pathlib import Path

import chats
import text
from errors import Failed
from lab import Lab

words = 6  # of an excerpt; by single words alone, naive Bayes names the domain of five in six
of_file = 10  # most excerpts from one file


def draw(files: list[str], most: int, drawn: random.Random) -> list[str]:
    """Returns up to `most` excerpts, up to `of_file` from each file, without repetitions."""
    found: dict[str, None] = {}
    for content in files:
        split = content.split()
        for _ in range(min(of_file, len(split) // words)):
            at = drawn.randrange(len(split) - words + 1)
            found.setdefault(" ".join(split[at:at + words]))
    return list(found)[:most]


def collect(most: int, most_held_out: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns excerpts with the names of their domains for training and held-out ones: up to these numbers from each domain."""
    parts: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
    for domain in text.domains(Path(__file__).resolve().parents[2]):
        files: dict[bool, list[str]] = {False: [], True: []}
        limits = {False: most, True: most_held_out}
        for _, content, held_out in text.texts(domain):
            if len(files[held_out]) * of_file < 2 * limits[held_out]:  # some files are short, or repeat excerpts
                files[held_out].append(content)
            if all(len(files[part]) * of_file >= 2 * limit for part, limit in limits.items()):
                break
        drawn = random.Random(1)
        trained = draw(files[False], most, drawn)
        known = set(trained)
        held = [excerpt for excerpt in draw(files[True], most_held_out, drawn) if excerpt not in known]
        if not held:
            raise Failed(f"this machine has no held-out excerpts of the domain {domain.name}", 3)
        parts[False] += [(excerpt, domain.name) for excerpt in trained]
        parts[True] += [(excerpt, domain.name) for excerpt in held]
    random.Random(2).shuffle(parts[False])
    return parts[False], parts[True]


def items(pairs: list[tuple[str, str]]) -> list[dict]:
    """Returns items in which the domain of an excerpt is among all domains."""
    names = sorted({name for _, name in pairs})
    return [{"context": f"{excerpt}\n", "choices": names, "answer": names.index(name)} for excerpt, name in pairs]


def prepare(lab: Lab, most: int = 4000, most_held_out: int = 200) -> chats.Chats:
    """Makes the excerpts in the folder of the corpus unless they exist: up to these numbers from each domain."""
    def make():
        trained, held_out = collect(most, most_held_out)
        return trained, held_out, items(held_out)
    return chats.write(lab, "excerpts", "excerpts.jsonl", make)
