"""What a build of the package needs, and no more: setup.py, CMakeLists.txt and pyproject.toml name what is in here."""
