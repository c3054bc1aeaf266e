"""Makes cloze items from the held-out text of each domain, by scripts/tasks/cloze.py: accuracies beside losses."""
import subprocess
import sys
import tempfile
from pathlib import Path

import text
from errors import Failed

words = 30  # of a context


def prepare(project: Path, corpus: text.Corpus, size: text.Size, most: int) -> None:
    """Makes the files of corpus.items() that do not exist, with up to `most` items each. A text that is held out now was held out
    when the corpus was made, even if the files of this machine have changed since, as its digest decides it."""
    for domain in text.domains(project):
        out, = corpus.items(domain.name)
        if out.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            source, room = Path(folder, "held-out.txt"), size.valid_bytes
            with open(source, "w", encoding="utf-8") as file:
                for _, held, _ in filter(lambda each: each[2], text.texts(domain)):
                    if (length := len(held.encode())) <= room:
                        file.write(held + "\n")
                        room -= length
                    if room < size.valid_bytes / 10:
                        break
            made = subprocess.run([sys.executable, str(project / "scripts/tasks/cloze.py"), str(source), "--out", str(out), "--items", str(most),
                                   "--least", "1", "--words", str(words)], capture_output=True, text=True)
            if made.returncode:
                raise Failed(f"no cloze items from the domain {domain.name}: {made.stderr.strip()}", made.returncode)
