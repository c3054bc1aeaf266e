from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """So that the file is whole at every instant."""
    partial = file.with_name(file.name + ".partial")
    partial.write_text(text)
    partial.replace(file)
