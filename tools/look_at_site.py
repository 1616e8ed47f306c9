"""Looks at the built site in a browser, at the width of a desk and of a phone: does everything fit?

python tools/look_at_site.py out/site [--pictures DIR [--dark]]: needs chromium. A page must not be wider than the
window. On a desk, tables and code must not be either; on a phone they may scroll. The search must work from the disk.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DESK, PHONE = 1280, 390
SOURCES = "/files/"  # pages that show source files, whose lines are longer

# Each page in a frame of each width. A table is measured when the theme has put it into a box that scrolls.
LOOK = """<!doctype html><body><script>
const TABLES = ".md-typeset__scrollwrap", CODE = ".highlight pre > code, .jp-RenderedText pre";
const frame = (page, width) => new Promise((resolve) => {
  const made = document.createElement("iframe");
  Object.assign(made, { src: page, onload: () => setTimeout(() => resolve(made), 200) });
  made.style = `width: ${width}px; height: 900px; border: 0`;
  document.body.append(made);
});
(async () => {
  const found = [];
  for (const [page, width] of WORK) {
    const made = await frame(page, width), root = made.contentDocument.documentElement;
    const cut = (what) =>
      [...root.querySelectorAll(what)].filter((box) => box.scrollWidth > box.clientWidth + 1).length;
    const over = root.scrollWidth - root.clientWidth;
    found.push({ page, width, over, tables: cut(TABLES), code: cut(CODE) });
    made.remove();
  }
  document.body.textContent = "FOUND" + JSON.stringify(found) + "END";
})();
</script></body>"""


def browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def run(*options: str) -> str:
    command = [browser() or BROWSERS[0], "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-dev-shm-usage", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=500).stdout


def look(site: Path, widths: tuple[int, ...] = (DESK, PHONE)) -> list[dict]:
    """{page, width, over, tables, code} for every page and width: how far it overflows, how many tables and
    blocks of code do."""
    pages = sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html"))
    work = json.dumps([(f"/{page}", width) for width in widths for page in pages])
    with tempfile.TemporaryDirectory(dir=site) as folder, served(site) as address:
        harness = Path(folder, "look.html")
        harness.write_text(LOOK.replace("WORK", work))
        url = f"{address}/{harness.relative_to(site)}"
        seen = run("--virtual-time-budget=600000", "--dump-dom", url)
    found = re.search("FOUND(.*)END", seen)
    if not found:
        raise SystemExit(f"the browser did not finish:\n{seen[-2000:]}")
    return json.loads(html.unescape(found[1]))


def complaints(found: list[dict]) -> list[str]:
    lines = []
    for one in found:
        at = f"{one['page']} at {one['width']} pixels"
        if one["over"] > 0:
            lines.append(f"{at}: {one['over']} pixels too wide")
        if one["tables"] and one["width"] == DESK:
            lines.append(f"{at}: a table hides a column")
        if one["code"] and one["width"] == DESK and not one["page"].startswith(SOURCES):
            lines.append(f"{at}: a line of code is cut off")
    return lines


def search(site: Path, word: str) -> bool:
    """Whether the search finds a word, on a page that is read from the disk."""
    url = f"{(site / 'index.html').resolve().as_uri()}?q={word}"
    seen = run("--allow-file-access-from-files", "--virtual-time-budget=20000", "--dump-dom", url)
    return bool(re.search(r"\b[1-9]\d* matching document", seen))


def pictures(site: Path, to: Path, pages: list[str], dark: bool) -> None:
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site) as folder, served(site) as address:
        for page in pages:
            for width in (DESK, PHONE):
                frame = Path(folder, "frame.html")
                style = f"width: {width}px; height: 3000px; border: 0"
                frame.write_text(f'<body style="margin: 0"><iframe style="{style}" src="/{page}">')
                name = to / f"{page.replace('/', '-').removesuffix('.html')}-{width}.png"
                run(
                    *(f"--screenshot={name}", f"--window-size={max(width, 500)},3000"),
                    f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                    *("--virtual-time-budget=5000", f"{address}/{frame.relative_to(site)}"),
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument(
        "--pictures", type=Path, metavar="DIR", help="write pictures of PAGES there"
    )
    parser.add_argument("--dark", action="store_true", help="as a reader sees them at night")
    parser.add_argument("pages", nargs="*", default=["index.html"], metavar="PAGES")
    options = parser.parse_args()
    if not browser():
        print("==> no chromium: nobody looked at the pages (Debian: apt install chromium)")
        return 0
    if options.pictures:
        pictures(options.site, options.pictures, options.pages, options.dark)
        return 0
    found = look(options.site)
    lines = complaints(found)
    if not search(options.site, "hardtanh"):
        lines.append("index.html: the search finds nothing when the page is read from the disk")
    print(
        "\n".join(
            [*lines, f"==> pages and widths looked at: {len(found)}; complaints: {len(lines)}"]
        )
    )
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
