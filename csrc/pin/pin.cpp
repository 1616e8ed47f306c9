#include "pin/pin.h"

#include <atomic>
#include <mutex>

namespace clampgrad::pin {

namespace {

// How many threads, and the process, have a convention set.
class Users {
 public:
  void add() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (count_++ == 0) {
      register_kernels();
    }
  }
  void remove() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) {
      unregister_kernels();
    }
  }

 private:
  std::mutex mutex_;
  int64_t count_ = 0;
};

Users& users() {
  static auto* users = new Users; // threads may end after static objects are gone
  return *users;
}

// Registered before it is set, and set back before it is unregistered.
template <typename Exchange>
Code set(Code code, Code before, Exchange exchange) {
  if (code >= kFirst && before < kFirst) {
    users().add();
  }
  exchange();
  if (code < kFirst && before >= kFirst) {
    users().remove();
  }
  return before;
}

std::atomic<Code> of_process = kUnset;

// Apart, because reading a thread_local object with a destructor costs more.
thread_local Code of_thread = kUnset;

struct AtThreadExit {
  ~AtThreadExit() {
    set_in_thread(kUnset);
  }
};

} // namespace

Code code_of(std::optional<std::string_view> gradient, bool maximize) {
  if (!gradient) {
    return kTorchsOwn;
  }
  const auto c = parse_convention(*gradient, maximize);
  return kFirst + 2 * static_cast<Code>(c.gradient) + static_cast<Code>(c.maximize);
}

std::optional<std::string> name_of(Code code) {
  const auto c = pinned(code);
  if (!c) {
    return std::nullopt;
  }
  return std::string(c->gradient) + (c->maximize ? ", maximize" : "");
}

std::optional<Pinned> pinned(Code code) {
  if (code < kFirst) {
    return std::nullopt;
  }
  const auto i = (code - kFirst) / 2;
  return Pinned{kGradientNames[i], (code - kFirst) % 2 != 0, is_pseudo(static_cast<Gradient>(i))};
}

Code set_in_thread(Code code) {
  thread_local AtThreadExit at_thread_exit;
  (void)at_thread_exit;
  return set(code, of_thread, [&] { of_thread = code; });
}

Code set_in_process(Code code) {
  return set(code, of_process, [&] { of_process = code; });
}

Code current() {
  if (of_thread != kUnset) {
    return of_thread;
  }
  const auto code = of_process.load(std::memory_order_relaxed);
  return code != kUnset ? code : kTorchsOwn;
}

Unpinned::Unpinned() : before_(of_thread) {
  of_thread = kTorchsOwn;
}

Unpinned::~Unpinned() {
  of_thread = before_;
}

} // namespace clampgrad::pin
