#pragma once
// The pin: which gradient aten's own clamp and its family have, in this thread or in the process.

#include "base/convention.h"

#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace clampgrad::pin {

// A convention, or torch's own gradient.
using OptionalConvention = std::optional<Convention>;

// The name of a pin, as people and Python write it: "with_grad, maximize", or None. parse_pin()
// raises ValueError, as operators do.
using Name = std::optional<std::string>;
CLAMPGRAD_FOR_PYTHON OptionalConvention parse_pin(const Name& name);
CLAMPGRAD_FOR_PYTHON Name name_of(OptionalConvention convention);

// A pin from the time it is entered until it is left, and the outer block. Entering stores a block
// as the innermost one, and leaving closes it; the innermost open block is the active one. Each is
// a single store, so an exception cannot leave it half done.
struct Block {
  CLAMPGRAD_FOR_PYTHON Block(
      OptionalConvention convention, std::shared_ptr<Block> outer, int64_t owner);
  CLAMPGRAD_FOR_PYTHON ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const OptionalConvention convention;
  std::shared_ptr<Block> outer; // Note [Blocks of tasks that start each other]
  const int64_t owner; // the object in Python that entered the block, which finds it again
  // The thread that enters and leaves the block. A generator may be resumed in another one.
  std::atomic<std::thread::id> thread = std::this_thread::get_id();
  std::atomic<bool> is_open = true;

  bool is_of_this_thread() const {
    return thread.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
};
using BlockRef = std::shared_ptr<Block>;

// Note [A block travels]
// ~~~~~~~~~~~~~~~~~~~~~~
// torch does work of a thread in threads of its own: backward on a GPU, or where it is deeply
// nested, and what a script forks. While they do it they have the state of the thread that started
// it (at::ThreadLocalState). The innermost block is part of that state, and stored nowhere else, so
// the work has the pin that it would have in the thread that started it. For the work a block is a
// value, as grad mode is: work that goes on after the block was left keeps the pin.

// Note [Blocks of tasks that start each other]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// A task that is started in a block keeps that block around its own, also once it is closed. If a
// task starts its successor, and so on, each would keep all before it. So entering a block
// removes closed blocks outside the enclosing one. Only the thread of the enclosing block does
// this, and no other thread looks past that block, except the one that drops it last.

// The active block of this thread, or of the thread that it works for, and the setter of the
// innermost one, which returns the previous one.
CLAMPGRAD_FOR_PYTHON BlockRef get_thread_block();
CLAMPGRAD_FOR_PYTHON BlockRef set_thread_block(BlockRef block);

// Sets the pin of every thread that has no open block.
CLAMPGRAD_FOR_PYTHON void set_process_pin(OptionalConvention pin);

// Tasks of an event loop have blocks that only Python knows. While one is open, its thread calls
// this function to find the active block. Another thread that works for it cannot, and raises an
// error.
CLAMPGRAD_FOR_PYTHON void set_block_resolver(BlockRef (*resolver)());
CLAMPGRAD_FOR_PYTHON void set_resolver_enabled(bool enabled);

// Returns the pin of this thread: that of its active block, or else that of the process.
CLAMPGRAD_FOR_PYTHON OptionalConvention current_pin();

// In kernels.cpp: at the first call registers over aten's own; returns the operators' names.
CLAMPGRAD_FOR_PYTHON const std::vector<std::string>& register_kernels();

// In kernels.cpp: returns how many calls of each operator, but for lists, got the gradient of a
// pin. Registers the kernels, too.
CLAMPGRAD_FOR_PYTHON std::unordered_map<std::string, int64_t> call_counts();

// In kernels.cpp: sets the function that observes each call of those operators before it runs, in
// every thread, or none (null). The function that it returns observes the result; if it returns
// none, it also observes the calls that the call makes.
using ResultObserver = std::function<void(const c10::IValue& result)>;
using Observer = ResultObserver (*)(const char* name, const std::vector<c10::IValue>& args);
CLAMPGRAD_FOR_PYTHON void set_observer(Observer observer);

} // namespace clampgrad::pin
