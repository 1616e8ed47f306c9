#include "base/convention.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <optional>

namespace clampgrad {

namespace {

std::optional<Gradient> gradient_named(std::string_view name) {
  for (const auto& c : kConventions) {
    if (name == c.name) {
      return c.gradient;
    }
  }
  for (const auto& alias : kAliases) {
    if (name == alias.name) {
      return alias.gradient;
    }
  }
  return std::nullopt;
}

} // namespace

Convention parse_convention(std::string_view name, bool maximize) {
  const auto gradient = gradient_named(name);
  TORCH_CHECK_VALUE(
      gradient, "unknown gradient '", name, "'; expected one of ", c10::Join(", ", kGradientNames));
  TORCH_CHECK_VALUE(
      !maximize || is_pseudo(*gradient),
      "maximize=True does not apply to gradient='",
      name,
      "': only 'with_grad' and 'restoring' depend on whether the loss is maximised");
  return {*gradient, maximize};
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
