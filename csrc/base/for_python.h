#pragma once
// What libclampgrad exports for clampgrad._C alone, which csrc/python makes, and which is built
// with it. CLAMPGRAD_API in clampgrad.h is for everybody.

#define CLAMPGRAD_FOR_PYTHON __attribute__((visibility("default")))
