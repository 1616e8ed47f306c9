#include "base/convention.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>

namespace clampgrad {

Convention parse_convention(std::string_view name, bool maximize) {
  const auto* const end = std::end(kNames);
  const auto* const known =
      std::find_if(std::begin(kNames), end, [&](const Named& one) { return one.name == name; });
  TORCH_CHECK_VALUE(
      known != end,
      "unknown gradient '",
      name,
      "'; expected one of ",
      c10::Join(", ", kGradientNames));
  TORCH_CHECK_VALUE(
      !maximize || is_pseudo(known->gradient),
      "maximize=True does not apply to gradient='",
      name,
      "': only 'with_grad' and 'restoring' depend on whether the loss is maximised");
  return {known->gradient, maximize};
}

Gradient parse_exact(std::string_view name, bool maximize, std::string_view operation) {
  const auto gradient = parse_convention(name, maximize).gradient;
  TORCH_CHECK_VALUE(
      !is_pseudo(gradient),
      "gradient='",
      name,
      "' is defined for clamps only, not for ",
      operation);
  return gradient;
}

} // namespace clampgrad
