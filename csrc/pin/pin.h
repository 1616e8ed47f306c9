#pragma once
// The pin: which gradient aten's own clamp and its family have, in this thread or in the process.

#include "ops/convention.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace clampgrad::pin {

// A pin as one number, so that a thread can read it without a lock. Nothing said, torch's own
// gradient by name, or a convention.
using Code = int32_t;
constexpr Code kUnset = 0, kTorchsOwn = 1, kFirst = 2;

// Raises ValueError as the operators do; no name is torch's own gradient.
Code code_of(std::optional<std::string_view> gradient, bool maximize);

// "inclusive", or "with_grad, maximize"; none for torch's own gradient.
std::optional<std::string> name_of(Code code);

// Sets what holds in this thread, or in every thread that has not set its own; returns what held
// before. While any of them is a convention, the kernels are registered over aten's.
Code set_in_thread(Code code);
Code set_in_process(Code code);

// What holds in this thread: its own, or else that of the process, or else torch's own.
Code current();

struct Pinned {
  std::string_view gradient;
  bool maximize;
  bool is_pseudo;
};
std::optional<Pinned> pinned(Code code);

// While one lives, aten's operators in this thread are torch's own.
class Unpinned {
 public:
  Unpinned();
  ~Unpinned();
  Unpinned(const Unpinned&) = delete;
  Unpinned& operator=(const Unpinned&) = delete;

 private:
  Code before_;
};

// In kernels.cpp: what is registered over aten's own, and its names: "aten::clamp.Tensor".
void register_kernels();
void unregister_kernels();
std::vector<std::string> pinned_operators(); // none before the first pin

} // namespace clampgrad::pin
