#pragma once
// The pin: which gradient aten's own clamp and its family have, in this thread or in the process.

#include "base/convention.h"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace clampgrad::pin {

// A pin as one number, so that a thread can read it without a lock: nothing is set, torch's own
// gradient is asked for by name, or a convention. kAsk: the thread runs several tasks with pins of
// their own, and a function (see ask_with) says what the one that runs now has.
using Code = int32_t;
constexpr Code kAsk = -1, kUnset = 0, kTorchsOwn = 1, kFirst = 2;

// Raises ValueError as the operators do; no name is torch's own gradient.
Code code_of(std::optional<std::string_view> gradient, bool maximize);

// "inclusive", or "with_grad, maximize"; none for torch's own gradient.
std::optional<std::string> name_of(Code code);

// Set what holds in this thread, or in those that have set nothing; return what was set before.
// Without an effect until the kernels are registered.
Code set_in_thread(Code code);
Code set_in_process(Code code);

// Sets the function that says what holds in a thread whose code is kAsk.
void ask_with(Code (*function)());

// What holds in this thread: its own, or else that of the process, or else torch's own.
Code current();

// None for torch's own gradient.
std::optional<Convention> pinned(Code code);

// In kernels.cpp: at the first call registers over aten's own; returns the operators' names.
const std::vector<std::string>& register_kernels();

// In kernels.cpp: how many calls of each, but for lists, got the gradient of a pin. Registers too.
std::unordered_map<std::string, int64_t> calls_reached();

} // namespace clampgrad::pin
