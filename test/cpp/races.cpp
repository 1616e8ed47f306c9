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

BlockRef block(const Pinned& pinned) {
  return std::make_shared<Block>(pinned, innermost(), 0);
}

const BlockRef of_a_task = block(parse_pinned("with_grad, maximize"));

BlockRef answer() {
  return of_a_task;
}

// Any of these names; "" is none.
template <typename... Names>
bool holds(const Names*... names) {
  const auto found = current();
  const auto name = found ? name_of(*found) : "";
  return ((name == names) || ...);
}

// A block of a thread holds there, whatever the others and the process do.
void pin_and_ask() {
  for (int n = 0; n < 10000; ++n) {
    const auto mine = block(parse_pinned("half"));
    make_innermost(mine);
    expect(holds("half"));
    const auto inside = block(std::nullopt);
    make_innermost(inside);
    expect(holds(""));
    inside->is_open = false;
    expect(holds("half"));
    mine->is_open = false;
    expect(holds("", "inclusive", "joint")); // the process's, which changes
  }
  ask_in_this_thread(true);
  expect(holds("with_grad, maximize"));
}

void pin_the_process() {
  for (int n = 0; n < 10000; ++n) {
    set_process(parse_pinned(n % 2 ? "inclusive" : "joint"));
    ask_with(&answer);
  }
  set_process(std::nullopt);
}

} // namespace

int main() {
  ask_with(&answer);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(pin_and_ask);
  }
  threads.emplace_back(pin_the_process);
  for (auto& thread : threads) {
    thread.join();
  }
  std::printf(wrong ? "wrong pins: %d\n" : "no race, %d wrong pins\n", wrong.load());
  return wrong != 0;
}
