// The text that says what libclampgrad was built from.

#include "stamp.h" // generated
#include "base/for_python.h"

namespace clampgrad {

// python/clampgrad/_implementation/stamp.py reads it from the file. Exported, so that it is kept.
extern CLAMPGRAD_FOR_PYTHON const char* const stamp;
const char* const stamp = kStamp;

} // namespace clampgrad
