# Written by the build, beside the extension.
TORCH: str  # a release: "2.13.0"
