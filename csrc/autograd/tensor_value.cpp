#include "autograd/tensor_value.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace clampgrad {

using at::Scalar;
using at::Tensor;

TensorMask::TensorMask(bool constant)
    : tensor_([constant](const Tensor& like) {
        const auto options = at::TensorOptions(at::kBool);
        return constant ? at::ones_like(like, options) : at::zeros_like(like, options);
      }),
      constant_(constant) {}

TensorMask operator&(const TensorMask& a, const TensorMask& b) {
  if (a.constant_ || b.constant_) {
    return a.constant_ == false || b.constant_ == true ? a : b;
  }
  return TensorMask([a, b](const Tensor& like) { return a.get(like).logical_and(b.get(like)); });
}

TensorMask operator|(const TensorMask& a, const TensorMask& b) {
  if (a.constant_ || b.constant_) {
    return a.constant_ == true || b.constant_ == false ? a : b;
  }
  return TensorMask([a, b](const Tensor& like) { return a.get(like).logical_or(b.get(like)); });
}

TensorMask operator^(const TensorMask& a, const TensorMask& b) {
  if (a.constant_ && b.constant_) {
    return TensorMask(*a.constant_ != *b.constant_);
  }
  if (b.constant_) {
    return b ^ a;
  }
  if (a.constant_) {
    return *a.constant_ ? TensorMask([b](const Tensor& like) { return b.get(like).logical_not(); })
                        : b;
  }
  return TensorMask([a, b](const Tensor& like) { return a.get(like).logical_xor(b.get(like)); });
}

TensorMask operator==(const TensorMask& a, const TensorMask& b) {
  return a ^ b ^ TensorMask(true);
}

TensorValue::TensorValue(Scalar number)
    : tensor_([number](const Tensor& like) {
        return at::scalar_tensor(number, at::device(like.device()).dtype(like.scalar_type()));
      }),
      number_(std::move(number)) {}

template <typename Compare>
TensorMask TensorValue::compared(const TensorValue& a, const TensorValue& b, Compare compare) {
  return TensorMask([a, b, compare](const Tensor& like) {
    return b.number_ ? compare(a.get(like), *b.number_) : compare(a.get(like), b.get(like));
  });
}

// Two numbers compare at once, unless a compiler traces them.
std::optional<bool> TensorValue::equal_numbers(const TensorValue& a, const TensorValue& b) {
  if (!a.number_ || !b.number_ || a.number_->isSymbolic() || b.number_->isSymbolic()) {
    return std::nullopt;
  }
  return a.number_->toDouble() == b.number_->toDouble();
}

#define CLAMPGRAD_COMPARE(op, name)                                                \
  TensorMask operator op(const TensorValue& a, const TensorValue& b) {             \
    return TensorValue::compared(                                                  \
        a, b, [](const Tensor& a, const auto& b) -> Tensor { return a.name(b); }); \
  }
CLAMPGRAD_COMPARE(<, lt)
CLAMPGRAD_COMPARE(<=, le)
CLAMPGRAD_COMPARE(>, gt)
CLAMPGRAD_COMPARE(>=, ge)
#undef CLAMPGRAD_COMPARE

TensorMask operator==(const TensorValue& a, const TensorValue& b) {
  if (const auto equal = TensorValue::equal_numbers(a, b)) {
    return TensorMask(*equal);
  }
  return TensorValue::compared(
      a, b, [](const Tensor& a, const auto& b) -> Tensor { return a.eq(b); });
}

TensorMask where(const TensorMask& mask, const TensorMask& a, const TensorMask& b) {
  return TensorMask([mask, a, b](const Tensor& like) {
    return at::where(mask.get(like), a.get(like), b.get(like));
  });
}

TensorValue where(const TensorMask& mask, const TensorValue& a, const TensorValue& b) {
  return TensorValue([mask, a, b](const Tensor& like) {
    return b.number_ ? at::where(mask.get(like), a.get(like), *b.number_)
                     : at::where(mask.get(like), a.get(like), b.get(like));
  });
}

// One operator, and a quick one; a select is neither.
TensorValue larger(const TensorValue& a, const TensorValue& b) {
  return TensorValue([a, b](const Tensor& like) { return at::maximum(a.get(like), b.get(like)); });
}

// By integers: a floating-point number would promote some ZeroTensors to float64.
TensorValue TensorElement::halved(const TensorValue& x) {
  return TensorValue([x](const Tensor& like) { return x.get(like) / 2; });
}
TensorValue TensorElement::quartered(const TensorValue& x) {
  return TensorValue([x](const Tensor& like) { return x.get(like) / 4; });
}
TensorValue TensorElement::third(const TensorValue& x) {
  return TensorValue([x](const Tensor& like) { return x.get(like) / 3; });
}
TensorValue TensorElement::difference(const TensorMask& a, const TensorMask& b) {
  return TensorValue([a, b](const Tensor& like) {
    return a.get(like).to(like.scalar_type()) - b.get(like).to(like.scalar_type());
  });
}

} // namespace clampgrad
