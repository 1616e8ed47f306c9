#pragma once
// In place of csrc/kernels/cuda/launch.cuh: the kernels on the host, warp by warp. The lanes of a
// warp are coroutines that meet at every shuffle.

#include <c10/util/Exception.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct Index {
  unsigned x;
};
inline Index blockIdx, threadIdx;

namespace warp {

constexpr int kWarpSize = 32;
constexpr size_t kStack = 64 * 1024;

inline ucontext_t scheduler, lanes[kWarpSize];
inline bool done[kWarpSize];
inline int lane, shuffles[kWarpSize];
// Two, because some lanes write the next value before others have read.
inline uint32_t slots[2][kWarpSize];
inline std::function<void()> body;

// What every lane says.
inline const uint32_t* exchange(uint32_t value) {
  const int self = lane, turn = shuffles[self]++ % 2;
  slots[turn][self] = value;
  swapcontext(&lanes[self], &scheduler);
  return slots[turn];
}

inline void run_lane() {
  body();
  done[lane] = true;
}

inline void run(int first_thread) {
  static std::vector<char> stacks(kWarpSize * kStack);
  for (lane = 0; lane < kWarpSize; ++lane) {
    getcontext(&lanes[lane]);
    lanes[lane].uc_stack = {&stacks[lane * kStack], 0, kStack};
    lanes[lane].uc_link = &scheduler;
    makecontext(&lanes[lane], run_lane, 0);
    done[lane] = false;
    shuffles[lane] = 0;
  }
  while (!done[0]) {
    for (lane = 0; lane < kWarpSize; ++lane) {
      threadIdx.x = first_thread + lane;
      swapcontext(&scheduler, &lanes[lane]);
      TORCH_CHECK(done[lane] == done[0], "some lanes of a warp left before a shuffle of others");
    }
  }
}

} // namespace warp

inline uint32_t __shfl_xor_sync(unsigned, uint32_t value, int other) {
  const int from = warp::lane ^ other;
  return warp::exchange(value)[from];
}
inline uint32_t __shfl_sync(unsigned, uint32_t value, int from) {
  return warp::exchange(value)[from];
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = low | uint64_t{high} << 32;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    chosen |= uint32_t{static_cast<uint8_t>(bytes >> 8 * (selector >> 4 * i & 7))} << 8 * i;
  }
  return chosen;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
inline uint32_t __ballot_sync(unsigned, bool value) {
  const uint32_t* const all = warp::exchange(value);
  uint32_t word = 0;
  for (int i = 0; i < warp::kWarpSize; ++i) {
    word |= all[i] << i;
  }
  return word;
}

#include "kernels/cuda/kernels.cuh"

namespace clampgrad::cuda {

template <typename Kernel, typename... Args>
void launch(c10::Device device, int64_t n, int64_t elements, Kernel kernel, Args... args) {
  warp::body = [&] { kernel(args...); };
  for (blockIdx.x = 0; blockIdx.x * elements < n; ++blockIdx.x) {
    for (int first = 0; first < kThreads; first += kWarpSize) {
      warp::run(first);
    }
  }
}

// Of a small tensor, or of a large one.
inline int rows_for(c10::Device, int64_t, int64_t, int most) {
#if defined(SMALL_TILES)
  return 1;
#else
  return most;
#endif
}

} // namespace clampgrad::cuda
