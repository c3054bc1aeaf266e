"""Hooks of mkdocs for scripts/docs.sh."""

import re


def on_page_markdown(markdown, **_):
    """Removes the second word of fences such as ```sh slow: it is for docs_test.sh, and Python-Markdown knows no such fence."""
    return re.sub(r"^(```\w+) .*$", r"\1", markdown, flags=re.MULTILINE)
