"""Only what a build of the package needs: setup.py, CMakeLists.txt and
pyproject.toml name these files."""
