"""torch's BuildExtension with flags for single files, where it has one list for all; with
extensions of which the others link the first; a ninja that it finds; and a sign of life."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from buildtools.switches import jobs


def put_ninja_on_path() -> None:
    """torch looks for it there. pip puts it beside this Python, in an environment
    that need not be activated."""
    with suppress(ImportError):
        import ninja

        os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, os.environ.get("PATH", os.defpath)])


SILENCE = 20  # seconds


@contextmanager
def sign_of_life(sources_left: Callable[[], list[str]]) -> Iterator[None]:
    """Says now and then which sources are left. ninja names a file when it has compiled it, which
    takes up to minutes."""
    start, done = time.monotonic(), threading.Event()

    def say() -> None:
        while not done.wait(SILENCE):
            names = " ".join(map(name_of, sources_left())) or "again"
            print(f"clampgrad: {time.monotonic() - start:.0f} s, compiling {names}", flush=True)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def name_of(source: str) -> str:
    return Path(source).name


def build_extension(
    flags_of: dict[str, list[str]], check: Callable[[str], None] = lambda library: None
) -> type:
    """torch's BuildExtension with flags for single files, by name, besides those of all. `check`
    sees what was linked. The attribute `file` of an extension is the name of its file, and `beside`
    another one that it links, which is the first. Imports torch."""
    put_ninja_on_path()
    from torch.utils.cpp_extension import BuildExtension, is_ninja_available

    if not is_ninja_available():
        print(
            "clampgrad: no ninja, so one file is compiled at a time: pip install ninja", flush=True
        )

    class Build(BuildExtension):
        def build_extension(self, ext) -> None:
            if ext is self.extensions[0]:
                self.objects = self.compile_all()
            file = self.get_ext_fullpath(ext.name)
            linked = [self.get_ext_fullpath(ext.beside.name)] if hasattr(ext, "beside") else []
            self.compiler.link_shared_object(
                [*self.objects[ext.name], *linked],
                file,
                libraries=self.get_libraries(ext),
                library_dirs=ext.library_dirs,
                extra_postargs=ext.extra_link_args,
                debug=self.debug,
                target_lang="c++",
            )
            check(file)

        def compile_all(self) -> dict[str, list[str]]:
            """The objects of each extension, by its name. All is compiled before anything
            is linked, so no core waits."""
            first, *others = self.extensions
            together = [source for source in first.sources if not flags_of.get(name_of(source))]
            alone = [(first, source) for source in first.sources if source not in together]
            # The others are made of the same files, each with other headers.
            alone += [(ext, source) for ext in others for source in ext.sources]
            objects: dict[str, list[str]] = {ext.name: [] for ext in self.extensions}
            self.alone_left = [source for _, source in alone]

            def sources_left() -> list[str]:
                made = self.compiler.object_filenames(together, 0, self.build_temp)
                missing = [s for s, file in zip(together, made) if not os.path.exists(file)]
                return self.alone_left + missing

            # Without ninja, torch changes the compiler from file to file.
            workers = ThreadPoolExecutor(jobs() if self.use_ninja else 1)
            with sign_of_life(sources_left), workers as pool:
                for (ext, _), compiled in zip(alone, pool.map(self.compile_alone, *zip(*alone))):
                    objects[ext.name] += compiled
                objects[first.name] += self.compile(first, together, self.build_temp)
            return objects

        def compile_alone(self, ext, source: str) -> list[str]:
            # A folder for each, because ninja's own file is written there too.
            folder = Path(self.build_temp, ext.name.rpartition(".")[2], Path(source).stem)
            made = self.compile(ext, [source], str(folder), flags_of.get(name_of(source), []))
            self.alone_left.remove(source)
            return made

        def compile(
            self, ext, sources: list[str], folder: str, flags: Sequence[str] = ()
        ) -> list[str]:
            given = ext.extra_compile_args
            return self.compiler.compile(
                sources,
                output_dir=folder,
                include_dirs=ext.include_dirs,
                debug=self.debug,
                extra_postargs={**given, "cxx": [*given["cxx"], *flags]},
            )

        def get_ext_filename(self, fullname: str) -> str:
            """An extension may say what its file is called."""
            folder, _, last = fullname.rpartition(".")
            for ext in self.extensions:
                if ext.name.rpartition(".")[2] == last and hasattr(ext, "file"):
                    return os.path.join(*folder.split("."), ext.file)
            return super().get_ext_filename(fullname)

        def copy_extensions_to_source(self) -> None:
            for ext in self.extensions:
                Path("python", *ext.name.split(".")[:-1]).mkdir(parents=True, exist_ok=True)
            super().copy_extensions_to_source()

    return Build
