# Written by the build.
VERSION: str  # "0.1.0"
MISSING: str | None  # why no library was compiled, where one was wanted
