#include "pin/pin.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

namespace clampgrad::pin {

namespace {

std::atomic<Code> of_process = kUnset;
thread_local Code of_thread = kUnset;
std::atomic<Code (*)()> asked = nullptr;

} // namespace

Code code_of(std::optional<std::string_view> gradient, bool maximize) {
  if (!gradient) {
    TORCH_CHECK_VALUE(!maximize, "maximize=True does not apply to torch's own gradient");
    return kTorchsOwn;
  }
  const auto c = parse_convention(*gradient, maximize);
  return kFirst + 2 * static_cast<Code>(c.gradient) + static_cast<Code>(c.maximize);
}

std::optional<std::string> name_of(Code code) {
  const auto c = pinned(code);
  const auto suffix = c && c->maximize ? ", maximize" : "";
  return c ? std::optional(std::string(clampgrad::name_of(c->gradient)) + suffix) : std::nullopt;
}

std::optional<Convention> pinned(Code code) {
  const Convention c = {static_cast<Gradient>((code - kFirst) / 2), (code - kFirst) % 2 != 0};
  return code < kFirst ? std::nullopt : std::optional(c);
}

Code set_in_thread(Code code) {
  return std::exchange(of_thread, code);
}

Code set_in_process(Code code) {
  return of_process.exchange(code);
}

void ask_with(Code (*function)()) {
  asked = function;
}

Code current() {
  auto code = of_thread == kAsk ? asked.load()() : of_thread;
  if (code == kUnset) {
    code = of_process.load(std::memory_order_relaxed);
  }
  return code != kUnset ? code : kTorchsOwn;
}

} // namespace clampgrad::pin
