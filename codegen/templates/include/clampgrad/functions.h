#pragma once
// Included by clampgrad.h.

namespace clampgrad {

${api_declarations}

} // namespace clampgrad
