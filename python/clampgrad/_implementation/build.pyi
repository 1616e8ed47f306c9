# Written by the build.
VERSION: str  # "0.1.0"
SOURCES: str  # a hash of what libraries are compiled from (buildtools/stamp.py)
MISSING: str | None  # why no library was compiled, where one was wanted
