# Written by the build.
VERSION: str  # "0.1.0+torch2.13.0"
