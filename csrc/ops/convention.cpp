#include "ops/convention.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace clampgrad {

Convention parse_convention(std::string_view name, bool maximize) {
  for (size_t i = 0; i < kGradientNames.size(); ++i) {
    if (name != kGradientNames[i]) {
      continue;
    }
    const auto gradient = static_cast<Gradient>(i);
    TORCH_CHECK_VALUE(
        !maximize || gradient == Gradient::with_grad || gradient == Gradient::restoring ||
            gradient == Gradient::straight_through,
        "maximize=True means nothing for gradient='",
        name,
        "': only 'with_grad' and 'restoring' depend on whether the loss is minimised");
    return {gradient, maximize};
  }
  TORCH_CHECK_VALUE(
      false, "unknown gradient '", name, "'; known are: ", c10::Join(", ", kGradientNames));
}

Gradient parse_exact(std::string_view name, bool maximize, std::string_view operation) {
  const auto gradient = parse_convention(name, maximize).gradient;
  TORCH_CHECK_VALUE(
      !is_pseudo(gradient),
      "gradient='",
      name,
      "' is for clamps: ",
      operation,
      " has no interval to be outside of");
  return gradient;
}

Gate scalar_gate(Convention convention) {
  switch (convention.gradient) {
    case Gradient::min_norm:
    case Gradient::joint:
      return Gate::strict;
    case Gradient::inclusive:
      return Gate::inclusive;
    case Gradient::half:
      return Gate::half;
    case Gradient::with_grad:
      return convention.maximize ? Gate::with_grad_maximize : Gate::with_grad;
    case Gradient::restoring:
      return convention.maximize ? Gate::restoring_maximize : Gate::restoring;
    case Gradient::straight_through:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "straight_through has no gate");
}

} // namespace clampgrad
