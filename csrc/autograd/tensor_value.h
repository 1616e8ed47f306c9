#pragma once
// A whole Tensor as the V of a rule (kernels/rules/element.h).
//
// Nothing is computed before it is asked for, and nothing twice. A mask knows whether it holds
// everywhere or nowhere. So a rule that is written for vectors composes no operators that it does
// not need here: `everywhere & m` is m, and what only an unwanted gradient needs is not computed.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

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

class TensorMask {
 public:
  TensorMask() : TensorMask(false) {}
  explicit TensorMask(bool constant);
  TensorMask(LazyTensor::Compute compute) : tensor_(std::move(compute)) {}

  const at::Tensor& get(const at::Tensor& like) const {
    return tensor_.get(like);
  }

  friend TensorMask operator&(const TensorMask& a, const TensorMask& b);
  friend TensorMask operator|(const TensorMask& a, const TensorMask& b);
  friend TensorMask operator^(const TensorMask& a, const TensorMask& b);
  friend TensorMask operator==(const TensorMask& a, const TensorMask& b);

  template <typename T> // a mask or a value
  friend T select(const TensorMask& mask, const T& a, const T& b) {
    return mask.constant_ ? (*mask.constant_ ? a : b) : where(mask, a, b);
  }

 private:
  LazyTensor tensor_;
  std::optional<bool> constant_;
};

class TensorValue {
 public:
  TensorValue() : TensorValue(at::Scalar(0)) {}
  TensorValue(at::Scalar number);
  TensorValue(const at::Tensor& tensor)
      : TensorValue([tensor](const at::Tensor&) { return tensor; }) {}
  TensorValue(LazyTensor::Compute compute) : tensor_(std::move(compute)) {}

  const at::Tensor& get(const at::Tensor& like) const {
    return tensor_.get(like);
  }

  friend TensorMask operator<(const TensorValue& a, const TensorValue& b);
  friend TensorMask operator<=(const TensorValue& a, const TensorValue& b);
  friend TensorMask operator==(const TensorValue& a, const TensorValue& b);
  friend TensorMask operator>(const TensorValue& a, const TensorValue& b);
  friend TensorMask operator>=(const TensorValue& a, const TensorValue& b);
  friend TensorValue where(const TensorMask& mask, const TensorValue& a, const TensorValue& b);
  friend TensorValue larger(const TensorValue& a, const TensorValue& b);

 private:
  template <typename Compare>
  static TensorMask compared(const TensorValue& a, const TensorValue& b, Compare compare);
  static std::optional<bool> equal_numbers(const TensorValue& a, const TensorValue& b);

  LazyTensor tensor_;
  std::optional<at::Scalar> number_; // compared with as it is
};

TensorMask where(const TensorMask& mask, const TensorMask& a, const TensorMask& b);

// What a rule needs from a dtype, where torch does the arithmetic.
struct TensorElement {
  static TensorValue key(const TensorValue& x) {
    return x;
  }
  static TensorMask number(const TensorValue& x) {
    return x == x;
  }
  static TensorMask comparable(const TensorValue&) {
    return TensorMask() == TensorMask();
  }
  static TensorValue halved(const TensorValue& x);
  static TensorValue quartered(const TensorValue& x);
  static TensorValue third(const TensorValue& x);
  template <typename V>
  static V sign(const TensorMask& plus, const TensorMask& minus) {
    return difference(plus, minus);
  }

 private:
  static TensorValue difference(const TensorMask& a, const TensorMask& b);
};

} // namespace clampgrad
