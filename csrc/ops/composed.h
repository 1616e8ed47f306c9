#pragma once
// The composed path: the rules for whole Tensors, the V of kernels/rules/element.h.
//
// Values and masks are lazy, and computed once. A mask knows whether it is true, or false, for all
// elements. So a rule that is written for vectors composes no operators that it does not need here:
// `all_true & m` is m, and a gradient that is not needed costs nothing.
// A mask that only saved bits decide is one operator, by its truth table.

#include "Operators.h"
#include "kernels/call.h"
#include "kernels/rules/conventions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Scalar.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bitset>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace clampgrad {

class LazyTensor {
 public:
  // `like` has the shape, dtype and device of the gradient.
  using Compute = std::function<at::Tensor(const at::Tensor& like)>;

  LazyTensor(Compute compute) : state_(std::make_shared<State>(State{std::move(compute), {}})) {}

  const at::Tensor& get(const at::Tensor& like) const {
    if (state_->compute) {
      state_->tensor = state_->compute(like);
      state_->compute = nullptr; // and with it the operands
    }
    return state_->tensor;
  }

 private:
  struct State {
    Compute compute;
    at::Tensor tensor;
  };
  std::shared_ptr<State> state_;
};

// The bits that one call has saved.
struct SavedBits {
  at::Tensor bits;
  int per_element = 0;
  at::IntArrayRef dim_order;
};

// A mask as a function of the bits of one element; all or none of it is a constant.
using TruthTable = std::bitset<8>;
constexpr TruthTable kBitTables[] = {0b10101010, 0b11001100, 0b11110000};

class TensorMask : public LazyTensor {
 public:
  using LazyTensor::LazyTensor;
  TensorMask() : TensorMask(false) {}
  explicit TensorMask(bool constant) : TensorMask({}, TruthTable(constant ? 0xff : 0)) {}
  TensorMask(const SavedBits& saved, TruthTable table)
      : LazyTensor([=](const at::Tensor& like) {
          const auto options = at::TensorOptions(at::kBool);
          const auto& [bits, per_element, order] = saved;
          const auto values = static_cast<int64_t>(table.to_ulong());
          return table.none() ? at::zeros_like(like, options)
              : table.all()
              ? at::ones_like(like, options)
              : clampgrad::_mask_symint(bits, like.sym_sizes(), values, per_element, order);
        }),
        saved_(saved),
        table_(table) {}

  friend TensorMask operator&(const TensorMask& a, const TensorMask& b) {
    return a.is_constant(false) || b.is_constant(true) ? a
        : b.is_constant(false) || a.is_constant(true)
        ? b
        : combine(a, b, std::bit_and(), &at::Tensor::logical_and);
  }
  friend TensorMask operator|(const TensorMask& a, const TensorMask& b) {
    return a.is_constant(true) || b.is_constant(false) ? a
        : b.is_constant(true) || a.is_constant(false)
        ? b
        : combine(a, b, std::bit_or(), &at::Tensor::logical_or);
  }
  friend TensorMask operator^(const TensorMask& a, const TensorMask& b) {
    return b.is_constant(false) ? a
        : b.is_constant(true)   ? a.invert()
        : a.is_constant(false)  ? b
        : a.is_constant(true)   ? b.invert()
                                : combine(a, b, std::bit_xor(), &at::Tensor::logical_xor);
  }

  template <typename T> // a mask or a value
  friend T select(const TensorMask& mask, const T& a, const T& b) {
    return mask.is_constant(true) ? a : mask.is_constant(false) ? b : where(mask, a, b);
  }
  friend TensorMask where(const TensorMask& mask, const TensorMask& a, const TensorMask& b) {
    return TensorMask([mask, a, b](const at::Tensor& like) {
      return at::where(mask.get(like), a.get(like), b.get(like));
    });
  }

 private:
  bool is_constant(bool constant) const {
    return table_ && (constant ? table_->all() : table_->none());
  }
  TensorMask invert() const {
    return table_ ? TensorMask(saved_, ~*table_)
                  : TensorMask([self = *this](const at::Tensor& like) {
                      return self.get(like).logical_not();
                    });
  }
  template <typename Op, typename Method>
  static TensorMask combine(const TensorMask& a, const TensorMask& b, Op op, Method method) {
    if (a.table_ && b.table_) {
      return TensorMask(a.saved_, op(*a.table_, *b.table_));
    }
    return TensorMask([=](const at::Tensor& like) { return (a.get(like).*method)(b.get(like)); });
  }

  SavedBits saved_;
  std::optional<TruthTable> table_;
};

class TensorValue : public LazyTensor {
 public:
  using LazyTensor::LazyTensor;
  TensorValue() : TensorValue(at::Scalar(0)) {}
  // A number that a compiler traces is compared as a Tensor, because only that rounds it.
  TensorValue(const at::Scalar& number)
      : LazyTensor([number](const at::Tensor& like) {
          return at::scalar_tensor(number, at::device(like.device()).dtype(like.scalar_type()));
        }),
        number_(number.isSymbolic() ? std::nullopt : std::optional(number)) {}
  TensorValue(const at::Tensor& tensor)
      : LazyTensor([tensor](const at::Tensor&) { return tensor; }) {}

// A number stays a Scalar: on the left, by the flipped operator. Two compare at once. A macro,
// because the name of a method is no argument of a template.
#define CLAMPGRAD_COMPARE(op, name, flipped)                                  \
  friend TensorMask operator op(const TensorValue& a, const TensorValue& b) { \
    if (a.number_ && b.number_) {                                             \
      return TensorMask(a.number_->toDouble() op b.number_->toDouble());      \
    }                                                                         \
    return TensorMask([a, b](const at::Tensor& like) {                        \
      return a.number_ ? b.get(like).flipped(*a.number_)                      \
          : b.number_  ? a.get(like).name(*b.number_)                         \
                       : a.get(like).name(b.get(like));                       \
    });                                                                       \
  }
  CLAMPGRAD_COMPARE(<, lt, gt)
  CLAMPGRAD_COMPARE(<=, le, ge)
  CLAMPGRAD_COMPARE(==, eq, eq)
#undef CLAMPGRAD_COMPARE

  friend TensorValue where(const TensorMask& mask, const TensorValue& a, const TensorValue& b) {
    return select_with(mask, a, b, [](const auto&... args) { return at::where(args...); });
  }
  template <typename Op>
  static TensorValue select_with(
      const TensorMask& mask, const TensorValue& a, const TensorValue& b, Op op) {
    return TensorValue([=](const at::Tensor& like) {
      return b.number_ ? op(mask.get(like), a.get(like), *b.number_)
                       : op(mask.get(like), a.get(like), b.get(like));
    });
  }
  // One operator, and a faster one than the comparison and the select of the general function.
  friend TensorValue larger(const TensorValue& a, const TensorValue& b) {
    return TensorValue(
        [a, b](const at::Tensor& like) { return at::maximum(a.get(like), b.get(like)); });
  }

 private:
  std::optional<at::Scalar> number_; // compared with as it is
};

} // namespace clampgrad

#define CLAMPGRAD_INSTANCE composed
#include "kernels/rules/all.h"
#undef CLAMPGRAD_INSTANCE

namespace clampgrad {
namespace {

// What a rule needs from a dtype, where torch does the arithmetic.
struct TensorElement : composed::Real<double> {
  // By an integer, because a floating-point number promotes some ZeroTensors to float64.
  static TensorValue divide(const TensorValue& x, int64_t by) {
    return TensorValue([x, by](const at::Tensor& like) { return x.get(like) / by; });
  }
  static TensorValue half_of(const TensorValue& x) {
    return divide(x, 2);
  }
  static TensorValue quarter_of(const TensorValue& x) {
    return divide(x, 4);
  }
  // The fused kernel divides. On CUDA torch multiplies by the reciprocal of a number instead, which
  // rounds differently, but divides by a Tensor on the device.
  static TensorValue third_of(const TensorValue& x) {
    return TensorValue([x](const at::Tensor& like) {
      return like.is_cuda() ? x.get(like) / at::scalar_tensor(3, like.options()) : x.get(like) / 3;
    });
  }
  template <typename V>
  static V sign(const TensorMask& plus, const TensorMask& minus) {
    return V([plus, minus](const at::Tensor& like) {
      return plus.get(like).to(like.scalar_type()) - minus.get(like).to(like.scalar_type());
    });
  }
  // An operator, whose tangent raises.
  static TensorValue pseudo_gradient(
      const TensorMask& passes, const TensorValue& g, const TensorValue& outside) {
    return TensorValue::select_with(passes, g, outside, [](const auto&... args) {
      return clampgrad::_pseudo_gradient(args...);
    });
  }
};

} // namespace
} // namespace clampgrad
