from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Writes a file atomically."""
    partial = file.with_name(file.name + ".partial")
    partial.write_text(text)
    partial.replace(file)
