#include "pin/pin.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <c10/core/SafePyObject.h>
#include <c10/util/Exception.h>

#include <utility>

namespace clampgrad::pin {

namespace {

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

// ---- What a thread holds, and hands on ----------------------------------------------------------

// The blocks that there are. While there is none, no thread is looked at.
std::atomic<int64_t> blocks = 0;

// Never changed, because threads share it. torch takes it for an object of Python; there is none in
// it, so that nothing here needs Python or waits for it.
struct Held : c10::SafePyObject {
  Held(BlockRef block, std::thread::id asks)
      : SafePyObject(nullptr, nullptr), block(std::move(block)), asks(asks) {}
  const BlockRef block;
  const std::thread::id asks; // the thread whose tasks are in blocks, or none
};

using Objects = at::impl::ThreadLocalPythonObjects;
const std::string& kKey = *new std::string("clampgrad.pin"); // threads outlive statics

const Held* held() {
  return Objects::contains(kKey) ? static_cast<const Held*>(Objects::get(kKey).get()) : nullptr;
}

// Whether tasks of this thread are in blocks. Those of another thread cannot be asked.
bool asks_here(const Held& held) {
  if (held.asks == std::thread::id()) {
    return false;
  }
  TORCH_CHECK(
      held.asks == std::this_thread::get_id(),
      "clampgrad.pin: this runs in a thread of PyTorch's own, for a task of an event loop where "
      "tasks are in blocks of their own, and only the thread of the loop can tell them apart. Put "
      "the block around the loop, or pin the process (clampgrad.set_pin)");
  return true;
}

// Releases that cannot erase keep an empty one.
template <typename Map>
auto erase(int) -> decltype(Map::erase(kKey)) {
  Map::erase(kKey);
}
template <typename Map>
void erase(long) {
  Map::set(kKey, nullptr);
}

void hold(BlockRef block, std::thread::id asks) {
  if (block || asks != std::thread::id()) {
    Objects::set(kKey, std::make_shared<Held>(std::move(block), asks));
  } else if (held()) {
    erase<Objects>(0);
  }
}

// This block, or one around it. The work that torch does for another thread keeps a block of that
// thread: Note [A block travels].
const BlockRef& that_holds(const BlockRef& block) {
  const auto* found = &block;
  while (*found && !(*found)->is_open.load(std::memory_order_relaxed) &&
         (*found)->is_of_this_thread()) {
    found = &(*found)->outer;
  }
  return *found;
}

// A block may have been closed where the state of its thread was not at hand: in a hook, for which
// torch puts it away, or in an event loop. Then this thread would hand it on.
void let_go(const Held& here, const BlockRef& holds) {
  if (&holds != &here.block) {
    hold(BlockRef(holds), here.asks);
  }
}

} // namespace

Block::Block(Pinned pinned, BlockRef outer_, int64_t owner)
    : pinned(pinned), outer(std::move(outer_)), owner(owner) {
  blocks.fetch_add(1, std::memory_order_relaxed);
  if (outer && outer->is_of_this_thread()) {
    outer->outer = BlockRef(that_holds(outer->outer));
  }
}

Block::~Block() {
  blocks.fetch_sub(1, std::memory_order_relaxed);
  // One after the other: a recursion may be too deep for the stack. Another thread may have written
  // to a block, and then let go of it.
  for (auto next = std::move(outer); next && next.use_count() == 1;) {
    std::atomic_thread_fence(std::memory_order_acquire);
    next = BlockRef(std::move(next->outer));
  }
}

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
  const auto* here = held();
  if (!here) {
    return nullptr;
  }
  asks_here(*here);
  const auto& holds = that_holds(here->block);
  auto block = holds;
  let_go(*here, holds);
  return block;
}

BlockRef make_innermost(BlockRef block) {
  const auto* here = held();
  auto before = here ? here->block : nullptr;
  hold(std::move(block), here && asks_here(*here) ? here->asks : std::thread::id());
  return before;
}

void set_process(Pinned pinned) {
  of_process = pinned ? 2 * static_cast<int>(pinned->gradient) + pinned->maximize : kTorchsOwn;
}

void ask_with(BlockRef (*function)()) {
  asked = function;
}

void ask_in_this_thread(bool asks) {
  const auto* here = held();
  const auto before = here ? here->asks : std::thread::id();
  const auto asking = asks ? std::this_thread::get_id() : std::thread::id();
  const bool of_another = before != std::thread::id() && before != std::this_thread::get_id();
  if (asking != before && (asks || !of_another)) {
    hold(here ? here->block : nullptr, asking);
  }
}

Pinned current() {
  if (blocks.load(std::memory_order_relaxed) == 0) {
    return pinned_of_process();
  }
  const auto* here = held();
  if (!here) {
    return pinned_of_process();
  }
  if (asks_here(*here)) {
    const auto answer = asked.load()();
    return answer ? answer->pinned : pinned_of_process();
  }
  const auto& block = that_holds(here->block);
  const auto pinned = block ? block->pinned : pinned_of_process();
  let_go(*here, block);
  return pinned;
}

} // namespace clampgrad::pin
