#include "pin/pin.h"

namespace clampgrad::pin {

namespace {

thread_local BlockRef of_thread;
thread_local bool asks = false;
std::atomic<BlockRef (*)()> asked = nullptr;

// One number, so that it is read without a lock.
constexpr int kTorchsOwn = -1;
std::atomic<int> of_process = kTorchsOwn;

Pinned pinned_of_process() {
  const auto code = of_process.load(std::memory_order_relaxed);
  const Convention c = {static_cast<Gradient>(code / 2), code % 2 != 0};
  return code == kTorchsOwn ? Pinned() : c;
}

constexpr std::string_view kMaximize = ", maximize";

} // namespace

Pinned parse_pinned(const Name& name) {
  if (!name) {
    return std::nullopt;
  }
  const auto gradient = std::string_view(*name).substr(0, name->rfind(kMaximize));
  return parse_convention(gradient, /*maximize=*/gradient.size() < name->size());
}

Name name_of(Pinned pinned) {
  if (!pinned) {
    return std::nullopt;
  }
  return std::string(clampgrad::name_of(pinned->gradient))
      .append(pinned->maximize ? kMaximize : "");
}

BlockRef innermost() {
  return of_thread;
}

BlockRef make_innermost(BlockRef block) {
  of_thread.swap(block);
  return block;
}

void set_process(Pinned pinned) {
  of_process = pinned ? 2 * static_cast<int>(pinned->gradient) + pinned->maximize : kTorchsOwn;
}

void ask_with(BlockRef (*function)()) {
  asked = function;
}

void ask_in_this_thread(bool now) {
  asks = now;
}

Pinned current() {
  const auto answer = asks ? asked.load()() : nullptr;
  const auto* block = asks ? answer.get() : of_thread.get();
  while (block && !block->is_open.load(std::memory_order_relaxed)) {
    block = block->outer.get();
  }
  return block ? block->pinned : pinned_of_process();
}

} // namespace clampgrad::pin
