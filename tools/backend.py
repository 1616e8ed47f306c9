"""The build backend: setuptools, which is told that a build without an extension needs no torch."""

import os

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403


def _requires() -> list[str]:
    if os.environ.get("CLAMPGRAD_PORTABLE") == "1":
        return []
    return ["torch>=2.11,<2.16", "ninja"]


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    return build_meta.get_requires_for_build_wheel(config_settings) + _requires()


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    return build_meta.get_requires_for_build_editable(config_settings) + _requires()
