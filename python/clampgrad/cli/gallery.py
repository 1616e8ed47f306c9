"""clampgrad gallery: pictures of every convention."""

import argparse

from clampgrad.cli.output import as_usage_error, write, write_json


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "clampgrad gallery", description="Draw pictures of every convention (needs matplotlib)."
    )
    parser.add_argument(
        "folder", metavar="DIR", help="folder for the pictures; created if it does not exist"
    )
    parser.add_argument("--json", action="store_true", help="print the paths as JSON")
    options = parser.parse_args(arguments)
    from clampgrad._tools.gallery import gallery

    with as_usage_error(parser, ImportError, OSError):
        paths = [str(path) for path in gallery(options.folder)]
    if options.json:
        write_json({"pictures": paths})
    else:
        write("\n".join(f"wrote {path}" for path in paths))
    return 0
