// Headers of libstdc++ ask glibc 2.32 whether a process has a single thread, to save atomic
// operations. setup.py gives that variable this name, so that a library runs on older systems too.

#include "base/for_python.h"

extern "C" {
CLAMPGRAD_FOR_PYTHON char clampgrad_single_threaded = 0;
}
