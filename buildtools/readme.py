"""README.md as the page of a package index shows it, where a relative link leads nowhere."""

import re

from buildtools.library import PROJECT, ROOT, VERSION

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:)([^)]+)\)")


def readme(project: str = PROJECT) -> str:
    """With links and pictures that lead into the repository that `project`, the text of
    pyproject.toml, names under [project.urls], as of this version; or unchanged."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    repository = re.search(r'^Repository = "(.+)"', project, re.MULTILINE)
    if repository is None:
        return text

    def absolute(link: re.Match) -> str:
        picture, words, path = link.groups()
        path = f"README.md{path}" if path.startswith("#") else path
        kind = "raw" if picture else "blob"
        return f"{picture}{words}({repository[1]}/{kind}/v{VERSION}/{path})"

    return LINK.sub(absolute, text)
