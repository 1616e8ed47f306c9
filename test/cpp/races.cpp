// The state of the pin, from many threads at once, under the thread sanitizer (make races).
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

// What a thread has set for itself holds, whatever the others and the process do.
void pin_and_ask(int i) {
  const Code mine = kFirst + i % 4;
  for (int n = 0; n < 10000; ++n) {
    const auto before = set_in_thread(mine);
    expect(current() == mine && pinned(current()).has_value());
    {
      const Unpinned inside;
      expect(current() == kTorchsOwn);
    }
    expect(set_in_thread(before) == mine);
    const auto found = current(); // the process's, which changes
    expect(found == kTorchsOwn || found == kFirst || found == kFirst + 1);
  }
  set_in_thread(kAsk);
  expect(current() == kFirst + 3);
}

void pin_the_process() {
  for (int n = 0; n < 10000; ++n) {
    set_in_process(kFirst + n % 2);
    ask_with([]() -> Code { return kFirst + 3; });
  }
  set_in_process(kUnset);
}

} // namespace

int main() {
  ask_with([]() -> Code { return kFirst + 3; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(pin_and_ask, i);
  }
  threads.emplace_back(pin_the_process);
  for (auto& thread : threads) {
    thread.join();
  }
  std::printf(wrong ? "wrong pins: %d\n" : "no race, %d wrong pins\n", wrong.load());
  return wrong != 0;
}
