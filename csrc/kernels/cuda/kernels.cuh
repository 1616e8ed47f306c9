#pragma once
// The one kernel, a template: it reads elements, and bits in a backward, and writes elements, and
// bits in a forward. What it does to one element is an Op (kernels/rules/).

#include "kernels/call.h"
#include "kernels/constant.h"
#include "kernels/cuda/inputs.cuh"

namespace clampgrad::cuda {

// A lane's words of the bits, read or to be written: one for each bit of an element.
template <typename Op>
using Words = uint32_t[Op::kBits];

// The registers in which an Op computes.
template <typename Op>
using Register = typename Op::E::Register;

// The masks that an Op reads or records per element: the bits, or comparisons that make them.
template <typename Op>
constexpr int kMasks = std::is_same_v<typename Op::Call, TensorForward<3>> ? 6 : Op::kBits;
template <typename Op>
using RecordedWords = uint32_t[kMasks<Op>];

// The words of bit b. A word of 64 is two of 32: the machine is little endian.
template <typename Op, typename T>
__device__ __forceinline__ auto* words_of(const Buffers<typename Op::Call, T>& s, int b) {
  using Word = std::conditional_t<is_forward<typename Op::Call>, uint32_t, const uint32_t>;
  return reinterpret_cast<Word*>(s.bits + b * word_count(s.n));
}
template <typename Op, typename T>
__device__ __forceinline__ void load_bits(
    const Buffers<typename Op::Call, T>& s, bool has_word, int64_t word, RecordedWords<Op>& to) {
  if constexpr (!is_forward<typename Op::Call>) {
    for_each_unrolled<Op::kBits>([&](int b) { to[b] = has_word ? words_of<Op>(s, b)[word] : 0; });
  }
}
template <typename Op, typename T>
__device__ __forceinline__ void store_bits(
    const Buffers<typename Op::Call, T>& s, bool has_word, int64_t word, const Words<Op>& from) {
  if constexpr (is_forward<typename Op::Call>) {
    for_each_unrolled<Op::kBits>([&](int b) {
      if (has_word) {
        words_of<Op>(s, b)[word] = from[b];
      }
    });
  }
}

template <typename Op>
__device__ __forceinline__ void make_bits(
    const Op& op, const RecordedWords<Op>& from, Words<Op>& to) {
  if constexpr (kMasks<Op> != Op::kBits) {
    op.make_bits(from, to);
  } else {
    for_each_unrolled<Op::kBits>([&](int b) { to[b] = from[b]; });
  }
}

template <int rows, typename T, typename Op>
__device__ __forceinline__ void run_row(
    const Op& op,
    const Buffers<typename Op::Call, T>& s,
    const Tile<T, rows>& tile,
    int row,
    const Vector<T> (&in)[Op::Call::kIn],
    RecordedWords<Op>& words) {
  using Call = typename Op::Call;
  using R = Register<Op>;
  using V = typename R::V;
  Vector<T> out[Call::kOut];
  Words<Op> bits = {};
  if constexpr (!is_forward<Call>) {
    for_each_unrolled<Op::kBits>(
        [&](int b) { bits[b] = R::expand_bits(tile.scatter_bits(words[b], row)); });
  }
  for_each_unrolled<Row<T>::kVector / R::kPackedValues>([&](int v) {
    const int i = v * R::kPackedValues;
    V from[Call::kIn], to[Call::kOut];
    typename R::Mask masks[kMasks<Op>];
    for_each_unrolled<Call::kIn>(
        [&](int k) { std::memcpy(&from[k], &in[k].values[i], sizeof(V)); });
    if constexpr (!is_forward<Call>) {
      for_each_unrolled<Op::kBits>([&](int b) { masks[b] = R::mask_at(bits[b], i); });
    }
    op(from, masks, to);
    if constexpr (is_forward<Call>) {
      for_each_unrolled<kMasks<Op>>([&](int m) { R::put(words[m], row, i, masks[m]); });
    }
    for_each_unrolled<Call::kOut>(
        [&](int k) { std::memcpy(&out[k].values[i], &to[k], sizeof(V)); });
  });
  for_each_unrolled<Call::kOut>([&](int k) {
    if (Call::kOut == 1 || s.out[k]) {
      tile.store(s.out[k], row, out[k]);
    }
  });
}

// A whole tile of aligned memory, with all loads in flight at once.
template <int rows, typename T, typename Op, typename Inputs>
__device__ __forceinline__ void run_rows(
    const Op& op, const Buffers<typename Op::Call, T>& s, const Inputs& inputs, int64_t first) {
  using R = Register<Op>;
  const Tile<T, rows> tile = {first};
  Words<Op> bits = {};
  RecordedWords<Op> words = {};
  load_bits<Op>(s, tile.has_word(), tile.word(), words);
  Vector<T> in[rows][Op::Call::kIn];
  for_each_unrolled<rows>([&](int row) {
    for_each_unrolled<Op::Call::kIn>(
        [&](int k) { inputs.load(tile, s.in[k], k, row, in[row][k]); });
  });
  for_each_unrolled<rows>([&](int row) { run_row(op, s, tile, row, in[row], words); });
  if constexpr (is_forward<typename Op::Call>) {
    for_each_unrolled<kMasks<Op>>([&](int m) { words[m] = R::word(words[m]); });
    make_bits(op, words, bits);
    for_each_unrolled<Op::kBits>(
        [&](int b) { bits[b] = tile.gather_bits(R::compact_bits(bits[b])); });
  }
  store_bits<Op>(s, tile.has_word(), tile.word(), bits);
}

// A tile that is not whole, or not aligned. Neighbouring lanes take neighbouring elements, so an
// access of a warp is one stretch of memory here too. Each lane keeps the bits of 32 elements.
// Comparisons with the end are of 32 bits, which saves registers.
template <typename T, typename Op, typename Inputs>
__device__ __forceinline__ void run_elements(
    const Op& op,
    const Buffers<typename Op::Call, T>& s,
    const Inputs& inputs,
    int64_t first,
    int64_t end) {
  using Call = typename Op::Call;
  using R = Register<Op>;
  constexpr int kBatch = 4; // loads in flight
  const int lane = threadIdx.x % kWarpSize;
  const int64_t word = first / 32 + lane;
  const bool has_word = word < 2 * word_count(end);
  const int count = static_cast<int>(end - first);
  RecordedWords<Op> saved_words = {};
  load_bits<Op>(s, has_word, word, saved_words);
#pragma unroll 1
  for (int w = 0; 32 * w < count; w += kBatch) {
    const int begin = 32 * w + lane;
    T in[kBatch][Call::kIn];
    for_each_unrolled<kBatch>([&](int j) {
      const int64_t i = first + begin + 32 * j;
      const bool inside = begin + 32 * j < count;
      for_each_unrolled<Call::kIn>(
          [&](int k) { in[j][k] = inside ? s.in[k][inputs.offset(k, i)] : T(0); });
    });
    for_each_unrolled<kBatch / R::kPackedValues>([&](int v) {
      const int first_j = v * R::kPackedValues;
      typename R::V from[Call::kIn], to[Call::kOut];
      typename R::Mask masks[kMasks<Op>];
      for_each_unrolled<Call::kIn>([&](int k) {
        T values[R::kPackedValues];
        for_each_unrolled<R::kPackedValues>([&](int p) { values[p] = in[first_j + p][k]; });
        from[k] = R::pack(values);
      });
      if constexpr (!is_forward<Call>) {
        for_each_unrolled<Op::kBits>([&](int b) {
          bool recorded[R::kPackedValues];
          for_each_unrolled<R::kPackedValues>([&](int p) {
            recorded[p] = (__shfl_sync(~0u, saved_words[b], w + first_j + p) >> lane & 1u) != 0;
          });
          masks[b] = R::mask(recorded);
        });
      }
      op(from, masks, to);
      for_each_unrolled<R::kPackedValues>([&](int p) {
        const int j = first_j + p;
        const int64_t i = first + begin + 32 * j;
        const bool inside = begin + 32 * j < count;
        for_each_unrolled<Call::kOut>([&](int k) {
          if (inside && (Call::kOut == 1 || s.out[k])) {
            s.out[k][i] = R::unpack(to[k], p);
          }
        });
        if constexpr (is_forward<Call>) {
          for_each_unrolled<kMasks<Op>>([&](int m) {
            const uint32_t all = __ballot_sync(~0u, R::bit(masks[m], p));
            saved_words[m] = lane == w + j ? all : saved_words[m];
          });
        }
      });
    });
  }
  if constexpr (is_forward<Call>) {
    Words<Op> bits;
    make_bits(op, saved_words, bits);
    const int rest = count - 32 * lane; // bits beyond the end are 0
    const uint32_t inside = rest < 32 ? ~(~0u << (rest > 0 ? rest : 0)) : ~0u;
    for_each_unrolled<Op::kBits>([&](int b) { bits[b] &= inside; });
    store_bits<Op>(s, has_word, word, bits);
  }
}

// Note [Branches of a warp]
// ~~~~~~~~~~~~~~~~~~~~~~~~~
// All lanes of a warp take the same branch. The compiler knows this where the number of the warp
// comes out of a shuffle. A forward needs that: its shuffles otherwise get code for lanes that have
// parted, which spills registers. A backward would mix the rows of a tile and lack predicates.
//
// A result may be one of the inputs that lie as it does. `rows` of a tile: 1 or kRows.
template <typename T, typename Op, typename Inputs>
__global__ void __launch_bounds__(kThreads) op_kernel(
    Op op_argument, Buffers<typename Op::Call, T> s, Inputs inputs, bool aligned, int rows) {
  const auto& op = Register<Op>::of(op_argument);
  int warp = threadIdx.x / kWarpSize;
  if constexpr (is_forward<typename Op::Call>) {
    warp = __shfl_sync(~0u, warp, 0);
  }
  const int64_t tile = rows * Row<T>::kElements;
  const int64_t first = (int64_t{blockIdx.x} * (kThreads / kWarpSize) + warp) * tile;
  const int64_t end = first + tile;
  if (first >= s.n) {
    return;
  }
  if (!aligned || end > s.n) {
    run_elements(op, s, inputs, first, end < s.n ? end : s.n);
  } else if (rows == kRows) {
    run_rows<kRows>(op, s, inputs, first);
  } else {
    run_rows<1>(op, s, inputs, first);
  }
}

} // namespace clampgrad::cuda
