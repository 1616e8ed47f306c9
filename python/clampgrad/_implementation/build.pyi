# Written by the build.
VERSION: str  # "1.0.0"
SOURCES: str  # a hash of what libraries are compiled from (buildtools/stamp.py)
LIBRARY: str  # the file name of libclampgrad in a folder of _lib (buildtools/library.py)
MISSING: str | None  # why no library was compiled, where one was wanted
NVCC: str  # the packages of pip's that are a compiler for CUDA (buildtools/pip_nvcc.py)
NVCC_SINCE: int  # the first CUDA that has them
