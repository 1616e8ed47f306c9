#pragma once
// Which GPUs the CUDA kernels run on.

#include <string_view>

namespace clampgrad {

// Whether code runs on a GPU of this compute capability. `code` has nvcc's names:
// "sm_80+compute_90". Machine code (sm) also runs on later minor versions, PTX (compute) on all
// later versions, a name that ends in "a" only on its own version, one in "f" on later minor
// versions.
constexpr bool runs_on(std::string_view code, int major, int minor) {
  while (!code.empty()) {
    const auto name = code.substr(0, code.find('+'));
    code.remove_prefix(name.size() + (name.size() < code.size()));
    int version = 0;
    for (const char c : name) {
      version = '0' <= c && c <= '9' ? 10 * version + (c - '0') : version;
    }
    const bool later = version / 10 < major && name.front() == 'c' && name.back() != 'f';
    const bool later_minor = version / 10 == major && version % 10 < minor;
    if (version == 10 * major + minor || (name.back() != 'a' && (later || later_minor))) {
      return true;
    }
  }
  return false;
}

} // namespace clampgrad
