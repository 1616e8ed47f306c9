"""The build backend: setuptools, which is told that a build without an extension needs no torch."""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403
from switches import portable  # this folder is the backend-path


def _requires() -> list[str]:
    return [] if portable() else ["torch>=2.11,<2.16", "ninja"]


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    return build_meta.get_requires_for_build_wheel(config_settings) + _requires()


def get_requires_for_build_editable(config_settings=None):  # type: ignore[no-untyped-def]
    return build_meta.get_requires_for_build_editable(config_settings) + _requires()
