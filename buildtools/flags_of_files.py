"""torch's BuildExtension with flags for single files, where it has one list for all; and a ninja that it finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from buildtools.switches import jobs


def put_ninja_on_path() -> None:
    """torch looks for it there. pip puts it beside this Python, in an environment that need not be activated."""
    with suppress(ImportError):
        import ninja

        os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, os.environ.get("PATH", os.defpath)])


def build_extension(
    flags_of: dict[str, list[str]], check: Callable[[str], None] = lambda library: None
) -> type:
    """torch's BuildExtension with flags for single files, by name, besides those of all. `check` sees what was linked.
    Imports torch."""
    put_ninja_on_path()
    from torch.utils.cpp_extension import BuildExtension, is_ninja_available

    if not is_ninja_available():
        print(
            "clampgrad: no ninja, so one file is compiled at a time: pip install ninja", flush=True
        )

    class Build(BuildExtension):
        def build_extension(self, ext) -> None:
            def compiled(source: str) -> list[str]:
                name = Path(source).name
                flags = {**ext.extra_compile_args}
                flags["cxx"] = [*flags["cxx"], *flags_of[name]]
                # A folder for each, because ninja's own file is written there too.
                return self.compiler.compile(
                    [source],
                    output_dir=os.path.join(self.build_temp, Path(name).stem),
                    include_dirs=ext.include_dirs,
                    debug=self.debug,
                    extra_postargs=flags,
                )

            special = [source for source in ext.sources if flags_of.get(Path(source).name)]
            # Without ninja, torch changes the compiler from file to file.
            with ThreadPoolExecutor(jobs() if self.use_ninja else 1) as pool:
                ext.extra_objects = [o for objects in pool.map(compiled, special) for o in objects]
            ext.sources = [source for source in ext.sources if source not in special]
            super().build_extension(ext)
            check(self.get_ext_fullpath(ext.name))

        def copy_extensions_to_source(self) -> None:
            for ext in self.extensions:
                Path("python", *ext.name.split(".")[:-1]).mkdir(parents=True, exist_ok=True)
            super().copy_extensions_to_source()

    return Build
