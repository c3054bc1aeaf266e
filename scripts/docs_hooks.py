"""Hooks of mkdocs for scripts/docs.sh."""

import re


def on_page_markdown(markdown, **_):
    """Removes the second word of fences such as ```sh slow. It is meant for docs_test.sh, and Python-Markdown rejects it."""
    return re.sub(r"^(```\w+) .*$", r"\1", markdown, flags=re.MULTILINE)
