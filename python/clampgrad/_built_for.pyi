# Written by the build, beside the extension.
TORCH: str  # a release: "2.13.0"
VERSION: str  # the package's: "0.1.0+torch2.13.0"
