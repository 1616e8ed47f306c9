"""Hooks of the site (mkdocs.yml): links to files outside docs/ lead to pages that show them, and dark pages have
dark pictures."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".yaml": "yaml", ".md": "markdown"}


def outside(source, link):
    """The path of the linked file from the root of the source tree, or None for a file in docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link))
    return None if path.startswith("docs/") else path


def shown_at(path):
    return f"files/{path}.md"


def on_files(files, config):
    paths = {
        outside(file.src_uri, match[2])
        for file in files.documentation_pages()
        if file.src_uri.endswith(".md")
        for match in LINK.finditer(file.content_string)
    }
    for path in sorted(p for p in paths if p and (ROOT / p).is_file()):
        text, language = (ROOT / path).read_text(), LANGUAGES.get(Path(path).suffix, "text")
        page = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n`````{language}\n{text}\n`````\n"
        file = File.generated(config, shown_at(path), content=page)
        file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown, page, config, files):
    def replace(match):
        path = outside(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        if files.get_file_from_path(shown_at(path)) is None:  # a folder
            return match[1]
        target = posixpath.relpath(shown_at(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"[{match[1]}]({target})"

    return LINK.sub(replace, markdown)


IMAGE = re.compile(r'<img [^>]*?src="([^"]+)\.png"[^>]*>')


def on_page_content(html, page, config, files):
    folder = posixpath.dirname(page.file.src_uri)

    def replace(match):
        dark = f"{match[1]}-dark.png"
        if files.get_file_from_path(posixpath.normpath(posixpath.join(folder, dark))) is None:
            return match[0]
        source = f'<source srcset="{dark}" media="(prefers-color-scheme: dark)">'
        return f"<picture>{source}{match[0]}</picture>"

    return IMAGE.sub(replace, html)
