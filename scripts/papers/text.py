"""Makes token files, with one vocabulary, from text that every fresh machine has, divided into domains.

A domain has the text files of one kind: C headers, Python sources, manual pages, documentation, licences. A digest of its
content determines if a file is held out. So the same files at the same paths give the same text, and equal files are used
once. Near duplicates, such as a licence in two spellings, are not removed.
"""
import gzip
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from errors import Failed
from files import write_whole

smallest_file, largest_file = 200, 1_000_000  # bytes: smaller files are no useful text, larger ones are tables or generated code
held_out_share = 20  # one of this many files is held out


@dataclass(frozen=True)
class Domain:
    name: str
    folders: tuple[str, ...]
    endings: tuple[str, ...] = ()  # endings of names, which .gz may follow; empty: any name
    name_is: str = ""  # only files of this name
    name_is_not: str = ""


def domains(project: Path) -> list[Domain]:
    packages = str(project / ".venv/lib")
    return [
        Domain("headers", ("/usr/include", "/usr/lib/gcc", "/usr/local/cuda/include"), (".h", ".hpp", ".hh", ".ipp", ".tcc")),
        Domain("python", ("/usr/lib/python3", "/usr/lib/python3.11", packages), (".py",)),
        Domain("manuals", ("/usr/share/man",), tuple(f".{section}" for section in range(1, 10))),
        Domain("documentation", ("/usr/share/doc", packages),
               (".md", ".rst", ".txt", ".html", "README", "NEWS", "changelog", "METADATA"), name_is_not="copyright"),
        Domain("licences", ("/usr/share/doc", "/usr/share/common-licenses"), name_is="copyright"),
    ]


@dataclass(frozen=True)
class Size:
    """The amount of text."""

    train_bytes: int  # per domain
    valid_bytes: int
    vocab: int


@dataclass(frozen=True)
class Corpus:
    folder: Path
    names: tuple[str, ...]  # domains
    tokens: dict[str, int]  # domain -> tokens for training
    digest: str  # digest of all token files

    def held_out(self) -> int:
        """Returns the number of held-out tokens of all domains."""
        return sum(json.loads((self.folder / f"{name}-valid.json").read_text())["tokens"] for name in self.names)

    def train(self, *names: str) -> str:
        """Returns the value of data.train for a mixture of these domains in equal parts; without names, of all domains."""
        return " ".join(f"1 {self.folder / f'{name}-train'}" for name in names or self.names)

    def valid(self, *names: str) -> str:
        """Returns the value of data.valid for the held-out text of these domains; "all" is one file with all domains."""
        return " ".join(str(self.folder / f"{name}-valid") for name in names or self.names)

    def items(self, *names: str) -> list[Path]:
        """Returns the files of cloze items from the held-out text of these domains; without names, of all domains."""
        return [self.folder / f"{name}-items.jsonl" for name in names or self.names]

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.model"


def _belongs(domain: Domain, name: str) -> bool:
    plain = name.removesuffix(".gz")
    if domain.name_is:
        return plain == domain.name_is
    return plain.endswith(domain.endings) and plain != domain.name_is_not


def _text(path: Path) -> str | None:
    """Returns the text of a file, or None if it has no usable text."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
        text = data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile):
        return None
    return text if smallest_file <= len(data) <= largest_file and "\0" not in text else None


def _files(domain: Domain):
    """Returns the regular files of a domain, each once, in an order that depends only on their paths and mixes folders."""
    found = set()
    for folder in domain.folders:
        for at, _, names in os.walk(folder):
            found.update(Path(at, name) for name in names if _belongs(domain, name))
    regular = (path for path in found if path.is_file() and not path.is_symlink())
    return sorted(regular, key=lambda path: hashlib.sha256(str(path).encode()).digest())


def texts(domain: Domain):
    """Yields each different text of a domain with its path, and True if it is held out."""
    seen = set()
    for path in _files(domain):
        text = _text(path)
        if text is None:
            continue
        digest = hashlib.sha256(text.encode()).digest()
        if digest not in seen:
            seen.add(digest)
            yield path, text, int.from_bytes(digest[:4], "big") % held_out_share == 0


def _collect(domain: Domain, size: Size, train: Path, valid: Path) -> dict[str, int]:
    """Writes the text of a domain to two files of JSON lines. Returns the bytes of text in each."""
    room = {train: size.train_bytes, valid: size.valid_bytes}
    with open(train, "w") as train_file, open(valid, "w") as valid_file:
        files = {train: train_file, valid: valid_file}
        for _, text, held_out in texts(domain):
            part = valid if held_out else train
            if (length := len(text.encode())) <= room[part]:
                files[part].write(json.dumps({"text": text}) + "\n")
                room[part] -= length
            if room[train] < size.train_bytes / 50 and room[valid] < size.valid_bytes / 10:
                break
    return {"train": size.train_bytes - room[train], "valid": size.valid_bytes - room[valid]}


def _digest(folder: Path, names) -> str:
    digest = hashlib.sha256()
    for file in [folder / "tokenizer.model", *(folder / f"{name}-{part}.bin" for name in names for part in ("train", "valid"))]:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def prepare(lyceum, project: Path, folder: Path, size: Size) -> Corpus:
    """Makes the corpus in `folder` unless it exists; `corpus.json` is written last. lyceum: a function that runs the program."""
    record = folder / "corpus.json"
    if record.exists():
        known = json.loads(record.read_text())
        if known["size"] != asdict(size):
            raise Failed(f"{folder} contains a different amount of text ({known['size']}): name another --work, or remove it", 2)
        return Corpus(folder, tuple(known["tokens"]), known["tokens"], known["digest"])
    folder.mkdir(parents=True, exist_ok=True)
    all_domains = domains(project)
    for domain in all_domains:
        made = _collect(domain, size, folder / f"{domain.name}-train.jsonl", folder / f"{domain.name}-valid.jsonl")
        print(f"text       {domain.name}: {made['train'] / 1e6:.1f} MB for training, {made['valid'] / 1e6:.2f} MB held out", flush=True)
        if min(made.values()) <= 0:
            raise Failed(f"this machine has no text of the domain {domain.name}: none in {', '.join(domain.folders)}", 3)
    # The vocabulary is learned from the beginning of each domain, in equal parts.
    sample = folder / "sample.jsonl"
    with open(sample, "w") as out:
        for domain in all_domains:
            left = 3_000_000
            for line in open(folder / f"{domain.name}-train.jsonl"):
                if (left := left - len(line)) < 0:
                    break
                out.write(line)
    lyceum("tokenize", "--input", str(sample), "--vocab", str(size.vocab), "--model", str(folder / "tokenizer.model"),
           "--output", str(folder / "sample"))
    together = [(folder / f"{domain.name}-valid.jsonl").read_text() for domain in all_domains]
    (folder / "all-valid.jsonl").write_text("".join(together))
    for prefix in [folder / "all-valid", *(folder / f"{domain.name}-{part}" for domain in all_domains for part in ("train", "valid"))]:
        lyceum("tokenize", "--input", f"{prefix}.jsonl", "--tokenizer", str(folder / "tokenizer.model"), "--output", str(prefix))
        os.remove(f"{prefix}.jsonl")
    for file in folder.glob("sample*"):
        file.unlink()
    tokens = {domain.name: json.loads((folder / f"{domain.name}-train.json").read_text())["tokens"] for domain in all_domains}
    digest = _digest(folder, tokens)
    write_whole(record, json.dumps({"size": asdict(size), "tokens": tokens, "digest": digest}, indent=1) + "\n")
    print(f"tokens     {sum(tokens.values()) / 1e6:.1f} M for training, vocabulary {size.vocab}", flush=True)
    return Corpus(folder, tuple(tokens), tokens, digest)
