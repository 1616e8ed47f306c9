#include "kernels/values.h"

#include "kernels/cpu/run_loop.h"

#include <ATen/Dispatch.h>

#include <algorithm>

namespace clampgrad {

namespace {

// Note [Rows of ATen]
// ~~~~~~~~~~~~~~~~~~~
// Of +0 and -0, ATen's maximum, minimum and clamp between Tensors return the last argument where
// their loop goes by vectors, and the first where it goes by elements. By vectors it goes through
// rows in which the result and all arguments are contiguous, or one argument is a single number:
// two vectors of AVX2 at once, also on machines with AVX-512, and the rest by elements. A
// TensorIterator makes the rows, and divides them among threads. So the same iterator makes ours,
// and each is divided in the same way.
constexpr int64_t kByVectors = 32; // elements of 16 bits

// What is not contiguous is copied by blocks.
constexpr int64_t kBlock = 16 * kElementsPerWord;

template <typename T, typename Call>
class Row {
  using L = Lane<T>;
  static constexpr int64_t kSize = sizeof(L);

 public:
  static constexpr int kOperands = Call::kIn + 1;

  Row(char* const* data, const int64_t* strides, int64_t n) : strides_(strides), n_(n) {
    std::copy_n(data, kOperands, data_);
    for (int k = 1; k < kOperands; ++k) {
      if (is_number(k)) {
        std::fill_n(copies_[k], std::min(word_count(n) * kElementsPerWord, kBlock), at(k, 0));
      }
    }
  }

  // How many elements ATen's loop takes by vectors.
  int64_t by_vectors() const {
    int numbers = 0;
    for (int k = 0; k < kOperands; ++k) {
      if (is_copied(k)) {
        return 0;
      }
      numbers += k > 0 && is_number(k);
    }
    return numbers <= 1 ? n_ / kByVectors * kByVectors : 0;
  }

  void run(Loop<T, Call> loop, const Call& call, int64_t begin, int64_t end) {
    bool copied = false;
    for (int k = 0; k < kOperands; ++k) {
      copied |= is_copied(k);
    }
    const auto step = copied ? kBlock : end - begin;
    for (; begin < end; begin += step) {
      run_block(loop, call, begin, std::min(step, end - begin));
    }
  }

 private:
  bool is_contiguous(int k) const {
    return strides_[k] == kSize;
  }
  bool is_number(int k) const {
    return strides_[k] == 0;
  }
  // Whether an operand is copied for each block. A number is, once for all blocks.
  bool is_copied(int k) const {
    return !is_contiguous(k) && !(k > 0 && is_number(k));
  }
  L& at(int k, int64_t i) const {
    return *reinterpret_cast<L*>(data_[k] + i * strides_[k]);
  }

  void run_block(Loop<T, Call> loop, const Call& call, int64_t begin, int64_t n) {
    Buffers<Call, L> s = {};
    s.n = n;
    const auto words = word_count(n);
    for (int k = 1; k < kOperands; ++k) {
      s.period_words[k - 1] = is_number(k) ? std::min(words, kBlock / kElementsPerWord) : words;
      s.in[k - 1] = is_contiguous(k) ? &at(k, begin) : copies_[k];
      if (is_copied(k)) {
        for (int64_t i = 0; i < n; ++i) {
          copies_[k][i] = at(k, begin + i);
        }
      }
    }
    s.out[0] = is_contiguous(0) ? &at(0, begin) : copies_[0];
    loop(s, call, 0, words);
    if (!is_contiguous(0)) {
      for (int64_t i = 0; i < n; ++i) {
        at(0, begin + i) = copies_[0][i];
      }
    }
  }

  char* data_[kOperands];
  const int64_t* strides_;
  int64_t n_;
  L copies_[kOperands][kBlock];
};

template <typename T>
void run_row(Row<T, NumberValues>& row, Loop<T, NumberValues> loop, NumberValues call, int64_t n) {
  row.run(loop, call, 0, n);
}

template <typename T, size_t arguments>
void run_row(
    Row<T, TensorValues<arguments>>& row,
    Loop<T, TensorValues<arguments>> loop,
    TensorValues<arguments> call,
    int64_t n) {
  if (skips_nan(call.op)) { // ATen's loop goes by elements alone
    return row.run(loop, call, 0, n);
  }
  const auto by_vectors = row.by_vectors();
  call.tie_takes_last = true;
  row.run(loop, call, 0, by_vectors);
  call.tie_takes_last = false;
  row.run(loop, call, by_vectors, n);
}

template <typename T, typename Call>
void run_rows(const Call& call, at::TensorIteratorBase& iter) {
  static const auto loop = cpu::select_loop<T, Call>();
  iter.for_each([&](char** data, const int64_t* strides, int64_t n, int64_t rows) {
    constexpr int kOperands = Row<T, Call>::kOperands;
    char* here[kOperands];
    std::copy_n(data, kOperands, here);
    for (int64_t r = 0; r < rows; ++r) {
      Row<T, Call> row(here, strides, n);
      run_row(row, loop, call, n);
      for (int k = 0; k < kOperands; ++k) {
        here[k] += strides[kOperands + k];
      }
    }
  });
}

} // namespace

void compute_values(const NumberValues& call, const at::Tensor& x, const at::Tensor& y) {
  const auto n = x.numel();
  Buffers<NumberValues> memory = {};
  memory.out[0] = y.mutable_data_ptr(); // first: in place, this copies a copy-on-write x
  memory.in[0] = x.const_data_ptr();
  memory.period_words[0] = word_count(n);
  memory.n = n;
  cpu::run_loop(call, x.scalar_type(), memory);
}

template <typename Call>
void compute_values(const Call& call, at::TensorIteratorBase& iter) {
  const auto run = [&](auto zero) { run_rows<decltype(zero)>(call, iter); };
  if constexpr (std::is_same_v<Call, NumberValues>) {
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, iter.dtype(), "clampgrad", [&] { run(scalar_t()); });
  } else {
    AT_DISPATCH_REDUCED_FLOATING_TYPES(iter.dtype(), "clampgrad", [&] { run(scalar_t()); });
  }
}

template void compute_values(const NumberValues&, at::TensorIteratorBase&);
template void compute_values(const TensorValues<2>&, at::TensorIteratorBase&);
template void compute_values(const TensorValues<3>&, at::TensorIteratorBase&);

} // namespace clampgrad
