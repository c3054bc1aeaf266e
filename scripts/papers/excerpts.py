"""Makes a classification task from the text of this machine: of which domain are these words? The answer is its name."""
import random
from pathlib import Path

import chats
import text
from errors import Failed
from lab import Lab

words = 6  # of an excerpt; by single words alone, naive Bayes names the domain of five in six
of_file = 10  # most excerpts from one file
least = {False: 400, True: 50}  # excerpts of each domain for training and held out: with fewer, accuracies say little


def draw(files: list[str], most: int, drawn: random.Random, known: set[str]) -> list[str]:
    """Returns up to `most` excerpts, up to `of_file` from each file, without those in `known`, and adds them to it."""
    found = []
    for content in files:
        split = content.split()
        for _ in range(min(of_file, len(split) // words)):
            at = drawn.randrange(len(split) - words + 1)
            excerpt = " ".join(split[at:at + words])
            if excerpt not in known and len(found) < most:
                known.add(excerpt)
                found.append(excerpt)
    return found


def collect(most: int, most_held_out: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns excerpts with the names of their domains for training and held-out ones: equally many from each domain, up to these
    numbers. No excerpt has two domains or is in both parts."""
    limits = {False: most, True: most_held_out}
    files_of: dict[str, dict[bool, list[str]]] = {}
    for domain in text.domains(Path(__file__).resolve().parents[2]):
        files: dict[bool, list[str]] = {False: [], True: []}
        files_of[domain.name] = files
        for _, content, held_out in text.texts(domain):
            if len(files[held_out]) * of_file < 4 * limits[held_out]:  # many files are short, or repeat excerpts
                files[held_out].append(content)
            if all(len(files[part]) * of_file >= 4 * limit for part, limit in limits.items()):
                break
    drawn, known = random.Random(1), set()
    parts: dict[bool, list[tuple[str, str]]] = {}
    for part, limit in limits.items():
        found = {name: draw(files[part], limit, drawn, known) for name, files in files_of.items()}
        scarcest = min(found, key=lambda name: len(found[name]))
        each = len(found[scarcest])
        if each < min(limit, least[part]):
            raise Failed(f"this machine has {each} {'held-out excerpts' if part else 'excerpts for training'} of the domain {scarcest}: at least "
                         f"{min(limit, least[part])} are needed", 3)
        parts[part] = [(excerpt, name) for name, excerpts in found.items() for excerpt in excerpts[:each]]
    random.Random(2).shuffle(parts[False])
    return parts[False], parts[True]


def items(pairs: list[tuple[str, str]]) -> list[dict]:
    """Returns items in which the domain of an excerpt is among all domains."""
    names = sorted({name for _, name in pairs})
    return [{"context": f"{excerpt}\n", "choices": names, "answer": names.index(name)} for excerpt, name in pairs]


def prepare(lab: Lab, most: int = 4000, most_held_out: int = 200) -> chats.Chats:
    """Makes the excerpts in the folder of the corpus unless they exist: equally many from each domain, up to these numbers."""
    def make():
        trained, held_out = collect(most, most_held_out)
        domains = len({name for _, name in held_out})
        print(f"excerpts   {len(trained) // domains:,} for training and {len(held_out) // domains} held out of each of {domains} domains", flush=True)
        return trained, held_out, items(held_out)
    return chats.write(lab, "excerpts", "excerpts.jsonl", make)
