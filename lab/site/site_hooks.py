"""Hooks of the site (mkdocs.yml): README.md is its first page, links to other files
outside docs/ lead to pages that show them, long names in tables may be broken, and
dark pages have dark pictures."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".yaml": "yaml", ".md": "markdown"}


def outside(source, link):
    """The path of the linked file from the root of the source tree, or None for a file in docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link))
    return None if path.startswith("docs/") else path


def shown_at(path):
    return "index.md" if path == "README.md" else f"files/{path}.md"


def home():
    """README.md as docs/index.md: its links start one folder lower."""
    text = (ROOT / "README.md").read_text()
    return re.sub(r"\]\((?!https?:|#)(docs/)?", lambda m: "](" if m[1] else "](../", text)


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=home()))
    paths = {
        outside(file.src_uri, match[2])
        for file in files.documentation_pages()
        if file.src_uri.endswith(".md")
        for match in LINK.finditer(file.content_string)
    }
    for path in sorted(p for p in paths - {None, "README.md"} if (ROOT / p).is_file()):
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
        anchor = match[3] if path == "README.md" and match[3] else ""
        return f"[{match[1]}]({target}{anchor})"

    return LINK.sub(replace, markdown)


IMAGE = re.compile(r'<img [^>]*?src="([^"]+)\.png"[^>]*>')
CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL)
LONG_CODE = re.compile(r"(?<=<code>)[^<]{15,}(?=</code>)")


def on_page_content(html, page, config, files):
    html = CELL.sub(lambda cell: LONG_CODE.sub(breakable, cell[0]), html)
    return enlarge_pictures(html, page, files)


def breakable(code):
    """A path or a call in a cell, which may go on in another line after each of its parts."""
    return re.sub(r"(?<=\w[/._(])(?=\w)", "<wbr>", code[0])


def enlarge_pictures(html, page, files):
    """Pictures that a reader can open, to enlarge them; dark ones for the night."""
    folder = posixpath.dirname(page.file.src_uri)

    def replace(match):
        dark = f"{match[1]}-dark.png"
        if files.get_file_from_path(posixpath.normpath(posixpath.join(folder, dark))) is None:
            return f'<a href="{match[1]}.png">{match[0]}</a>'
        source = f'<source srcset="{dark}" media="(prefers-color-scheme: dark)">'
        return f'<a href="{match[1]}.png"><picture>{source}{match[0]}</picture></a>'

    return IMAGE.sub(replace, html)
