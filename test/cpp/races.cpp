// The state of the pin, from many threads at once, under the thread sanitizer (nox -s races).
// A program of its own: torch is not instrumented, and what it does is not seen as ordered.

#include "pin/pin.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

using namespace clampgrad::pin;

namespace {

std::atomic<int> wrong = 0;

void expect(bool held) {
  wrong += !held;
}

BlockRef make_block(const OptionalConvention& convention) {
  return std::make_shared<Block>(convention, get_thread_block(), 0);
}

const BlockRef task_block = make_block(parse_pin("with_grad, maximize"));

BlockRef resolve_block() {
  return task_block;
}

// Whether the pin has one of these names; "" is none.
template <typename... Names>
bool is_pinned_to(const Names*... names) {
  const auto name = name_of(current_pin()).value_or("");
  return ((name == names) || ...);
}

// The block of a thread decides its pin, whatever other threads and the process do.
void pin_this_thread() {
  for (int n = 0; n < 10000; ++n) {
    const auto outer = make_block(parse_pin("half"));
    set_thread_block(outer);
    expect(is_pinned_to("half"));
    const auto inner = make_block(std::nullopt);
    set_thread_block(inner);
    expect(is_pinned_to(""));
    inner->is_open = false;
    expect(is_pinned_to("half"));
    outer->is_open = false;
    expect(is_pinned_to("", "inclusive", "joint")); // the process's, which changes
  }
  set_resolver_enabled(true);
  expect(is_pinned_to("with_grad, maximize"));
}

void pin_the_process() {
  for (int n = 0; n < 10000; ++n) {
    set_process_pin(parse_pin(n % 2 ? "inclusive" : "joint"));
    set_block_resolver(&resolve_block);
  }
  set_process_pin(std::nullopt);
}

} // namespace

int main() {
  set_block_resolver(&resolve_block);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(pin_this_thread);
  }
  threads.emplace_back(pin_the_process);
  for (auto& thread : threads) {
    thread.join();
  }
  std::printf(wrong ? "wrong pins: %d\n" : "no race, %d wrong pins\n", wrong.load());
  return wrong != 0;
}
