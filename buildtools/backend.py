"""The build backend: setuptools, which is told what a build needs of torch."""

import setuptools

OLDEST = 77  # as pyproject.toml says: it reads project.license, which is a string there
if int(setuptools.__version__.split(".")[0]) < OLDEST:
    raise SystemExit(
        f"clampgrad is built with setuptools {OLDEST} or later, and here is {setuptools.__version__}: "
        f"pip install -U 'setuptools>={OLDEST}'"
    )

from setuptools import build_meta  # noqa: E402
from setuptools.build_meta import *  # noqa: E402, F403

from buildtools.switches import portable  # noqa: E402
from buildtools.torch_here import requirements  # noqa: E402


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    return build_meta.get_requires_for_build_wheel(config_settings) + _of_torch()


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    return build_meta.get_requires_for_build_editable(config_settings) + _of_torch()


def _of_torch() -> list[str]:
    """The torch that an extension needs; nothing without one."""
    return [] if portable() else requirements()
