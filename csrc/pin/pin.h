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

// What is pinned: a convention, or torch's own gradient.
using Pinned = std::optional<Convention>;

// As people and Python write it: "with_grad, maximize", or None. Raises ValueError as operators do.
using Name = std::optional<std::string>;
CLAMPGRAD_FOR_PYTHON Pinned parse_pinned(const Name& name);
CLAMPGRAD_FOR_PYTHON Name name_of(Pinned pinned);

// A pin that holds where it was entered until it is left, and the block around it. Entering makes a
// block the innermost, and leaving closes it. Each is one store, so neither can be half done.
struct Block {
  CLAMPGRAD_FOR_PYTHON Block(Pinned pinned, std::shared_ptr<Block> outer, int64_t owner);
  CLAMPGRAD_FOR_PYTHON ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const Pinned pinned;
  std::shared_ptr<Block> outer; // Note [Blocks of tasks that start each other]
  const int64_t owner; // by which Python finds it again
  // The thread that enters and leaves it. A generator may be resumed in another one.
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
// it (at::ThreadLocalState). Our innermost block is part of that state, and kept nowhere else, so
// the work has the pin that it would have in the thread that started it. To the work a block is
// what grad mode is, a value: it may go on after the block was left, and keeps the pin.

// Note [Blocks of tasks that start each other]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// A task that is started in a block keeps that block around its own, also once it is closed. If a
// task starts its successor, and so on, each would keep all before it. So entering a block takes
// what is closed out from around the one that it is entered in. Only the thread of that block does
// so, and no other thread looks beyond it, but for the one that drops it last.

// The block that holds in this thread, or in the work that it does for another one.
CLAMPGRAD_FOR_PYTHON BlockRef innermost();
CLAMPGRAD_FOR_PYTHON BlockRef make_innermost(BlockRef block); // returns the former one

// What holds where no block does.
CLAMPGRAD_FOR_PYTHON void set_process(Pinned pinned);

// The tasks of a thread may be in blocks of their own, which this file does not know. While they
// are, the thread asks this function which block holds, if any. No other thread can: there it is an
// error that work of this thread asks.
CLAMPGRAD_FOR_PYTHON void ask_with(BlockRef (*function)());
CLAMPGRAD_FOR_PYTHON void ask_in_this_thread(bool asks);

// The pin of this thread: its block's, or else the process's. None is torch's own gradient.
CLAMPGRAD_FOR_PYTHON Pinned current();

// In kernels.cpp: at the first call registers over aten's own; returns the operators' names.
CLAMPGRAD_FOR_PYTHON const std::vector<std::string>& register_kernels();

// In kernels.cpp: how many calls of each, but for lists, got the gradient of a pin. Registers too.
CLAMPGRAD_FOR_PYTHON std::unordered_map<std::string, int64_t> calls_reached();

// In kernels.cpp: who is told of each call of those operators before it runs, in whatever thread.
// What it returns is told the result; if it returns nothing, it is told of what the call calls.
using Then = std::function<void(const c10::IValue& result)>;
using Observer = Then (*)(const char* name, const std::vector<c10::IValue>& args);
CLAMPGRAD_FOR_PYTHON void observe_with(Observer observer); // or null

} // namespace clampgrad::pin
