#include "pin/pin.h"

#include "base/messages.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <c10/core/SafePyObject.h>
#include <c10/util/Exception.h>

#include <utility>

namespace clampgrad::pin {

namespace {

std::atomic<BlockRef (*)()> block_resolver = nullptr;

// One number, so that it is read without a lock: kUnpinned, or 2 * gradient + maximize.
constexpr int kUnpinned = -1;
std::atomic<int> process_pin_code = kUnpinned;

OptionalConvention get_process_pin() {
  const auto code = process_pin_code.load(std::memory_order_relaxed);
  const Convention c = {static_cast<Gradient>(code / 2), code % 2 != 0};
  return code == kUnpinned ? OptionalConvention() : c;
}

constexpr std::string_view kMaximize = ", maximize";

// ---- The pin of a thread, which torch copies to the threads that work for it --------------------

// How many blocks exist. While there are none, a call does not look at the state of its thread.
std::atomic<int64_t> block_count = 0;

// Never changed, because threads share it. torch takes it for an object of Python; there is none in
// it, so that nothing here needs Python or waits for it.
struct ThreadPin : c10::SafePyObject {
  ThreadPin(BlockRef block, std::thread::id resolver_thread)
      : SafePyObject(nullptr, nullptr), block(std::move(block)), resolver_thread(resolver_thread) {}
  const BlockRef block;
  const std::thread::id resolver_thread; // the thread whose tasks have blocks, or none

  bool needs_resolver() const {
    return resolver_thread != std::thread::id();
  }
};

using Objects = at::impl::ThreadLocalPythonObjects;
const std::string& kThreadPinName = *new std::string("clampgrad.pin"); // threads outlive statics

const ThreadPin* get_thread_pin() {
  return Objects::contains(kThreadPinName)
      ? static_cast<const ThreadPin*>(Objects::get(kThreadPinName).get())
      : nullptr;
}

// Like get_thread_pin(), but raises an error if tasks of another thread have blocks, which only
// that thread can resolve.
const ThreadPin* get_resolvable_pin() {
  const auto* pin = get_thread_pin();
  TORCH_CHECK(
      !pin || !pin->needs_resolver() || pin->resolver_thread == std::this_thread::get_id(),
      messages::kTaskOfOtherThread);
  return pin;
}

// Releases that cannot erase keep an empty one.
template <typename Map>
auto erase(int) -> decltype(Map::erase(kThreadPinName)) {
  Map::erase(kThreadPinName);
}
template <typename Map>
void erase(long) {
  Map::set(kThreadPinName, nullptr);
}

void set_thread_pin(BlockRef block, std::thread::id resolver_thread) {
  if (block || resolver_thread != std::thread::id()) {
    Objects::set(kThreadPinName, std::make_shared<ThreadPin>(std::move(block), resolver_thread));
  } else if (get_thread_pin()) {
    erase<Objects>(0);
  }
}

// Returns the first block, from this one outwards, that is open or belongs to another thread: work
// that torch does for that thread keeps its pin after the block was left (Note [A block travels]).
const BlockRef& find_open_block(const BlockRef& innermost) {
  const auto* block = &innermost;
  while (*block && !(*block)->is_open.load(std::memory_order_relaxed) &&
         (*block)->is_of_this_thread()) {
    block = &(*block)->outer;
  }
  return *block;
}

// Drops closed blocks from the thread state, which torch would copy to other threads. They are left
// there if a block was closed in a hook, around which torch swaps the state, or in an event loop.
void drop_closed_blocks(const ThreadPin& pin, const BlockRef& active) {
  if (&active != &pin.block) {
    set_thread_pin(BlockRef(active), pin.resolver_thread);
  }
}

} // namespace

Block::Block(OptionalConvention convention, BlockRef outer_, int64_t owner)
    : convention(convention), outer(std::move(outer_)), owner(owner) {
  block_count.fetch_add(1, std::memory_order_relaxed);
  if (outer && outer->is_of_this_thread()) {
    outer->outer = BlockRef(find_open_block(outer->outer));
  }
}

Block::~Block() {
  block_count.fetch_sub(1, std::memory_order_relaxed);
  // Destroy the chain in a loop: recursive destructors could overflow the stack. The fence is for a
  // block that another thread wrote to before it dropped its reference.
  for (auto next = std::move(outer); next && next.use_count() == 1;) {
    std::atomic_thread_fence(std::memory_order_acquire);
    next = BlockRef(std::move(next->outer));
  }
}

OptionalConvention parse_pin(const Name& name) {
  if (!name) {
    return std::nullopt;
  }
  const auto gradient = std::string_view(*name).substr(0, name->rfind(kMaximize));
  return parse_convention(gradient, /*maximize=*/gradient.size() < name->size());
}

Name name_of(OptionalConvention convention) {
  if (!convention) {
    return std::nullopt;
  }
  return std::string(clampgrad::name_of(convention->gradient))
      .append(convention->maximize ? kMaximize : "");
}

BlockRef get_thread_block() {
  const auto* pin = get_resolvable_pin();
  if (!pin) {
    return nullptr;
  }
  const auto& active = find_open_block(pin->block);
  auto block = active;
  drop_closed_blocks(*pin, active);
  return block;
}

BlockRef set_thread_block(BlockRef block) {
  const auto* pin = get_resolvable_pin();
  auto previous = pin ? pin->block : nullptr;
  set_thread_pin(std::move(block), pin ? pin->resolver_thread : std::thread::id());
  return previous;
}

void set_process_pin(OptionalConvention pin) {
  process_pin_code = pin ? 2 * static_cast<int>(pin->gradient) + pin->maximize : kUnpinned;
}

void set_block_resolver(BlockRef (*resolver)()) {
  block_resolver = resolver;
}

void set_resolver_enabled(bool enabled) {
  const auto* pin = get_thread_pin();
  const auto previous = pin ? pin->resolver_thread : std::thread::id();
  const auto thread = enabled ? std::this_thread::get_id() : std::thread::id();
  const bool is_other = previous != std::thread::id() && previous != std::this_thread::get_id();
  if (thread != previous && (enabled || !is_other)) {
    set_thread_pin(pin ? pin->block : nullptr, thread);
  }
}

OptionalConvention current_pin() {
  if (block_count.load(std::memory_order_relaxed) == 0) {
    return get_process_pin();
  }
  const auto* pin = get_resolvable_pin();
  if (!pin) {
    return get_process_pin();
  }
  if (pin->needs_resolver()) {
    const auto task_block = block_resolver.load()();
    return task_block ? task_block->convention : get_process_pin();
  }
  const auto& active = find_open_block(pin->block);
  const auto convention = active ? active->convention : get_process_pin();
  drop_closed_blocks(*pin, active);
  return convention;
}

} // namespace clampgrad::pin
