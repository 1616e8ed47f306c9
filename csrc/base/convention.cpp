#include "base/convention.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace clampgrad {

namespace {

std::string listed(const Named* begin, const Named* end) {
  std::string words;
  for (const auto* one = begin; one != end; ++one) {
    words.append(words.empty() ? "" : ", ").append(one->name);
  }
  return words;
}

// How many characters to insert, delete or replace to make one of the other.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (std::tolower(static_cast<unsigned char>(a[i])) != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// The end of the error: the names that are nearest to a wrong one, if any is near.
std::string did_you_mean(std::string_view wrong) {
  size_t least = wrong.size() / 3;
  for (const auto& one : kNames) {
    least = std::min(least, edits(wrong, one.name));
  }
  std::string meant;
  for (const auto& one : kNames) {
    if (edits(wrong, one.name) == least) {
      meant.append(meant.empty() ? "; did you mean '" : " or '").append(one.name).append("'");
    }
  }
  return meant.empty() ? meant : meant + "?";
}

// `name` is what the caller has written: an alias, perhaps.
Convention checked(Gradient gradient, bool maximize, std::string_view name) {
  TORCH_CHECK_VALUE(
      !maximize || is_pseudo(gradient),
      "maximize=True does not apply to gradient='",
      name,
      "': only 'with_grad' and 'restoring' depend on whether the loss is maximised");
  return {gradient, maximize};
}

Gradient exact(Gradient gradient, std::string_view op, std::string_view name) {
  TORCH_CHECK_VALUE(
      !is_pseudo(gradient), "gradient='", name, "' is defined for clamps only, not for ", op);
  return gradient;
}

} // namespace

Convention parse_convention(std::string_view name, bool maximize) {
  const auto* const end = std::end(kNames);
  const auto* const known =
      std::find_if(std::begin(kNames), end, [&](const Named& one) { return one.name == name; });
  TORCH_CHECK_VALUE(
      known != end,
      "unknown gradient '",
      name,
      "'; expected one of ",
      listed(std::begin(kNames), std::begin(kNames) + kGradients),
      ", or an alias: ",
      listed(std::begin(kNames) + kGradients, end),
      did_you_mean(name));
  return checked(known->gradient, maximize, name);
}

Convention checked_convention(Gradient gradient, bool maximize) {
  const auto value = static_cast<int64_t>(gradient);
  TORCH_CHECK_VALUE(
      value >= 0 && value < kGradients, "clampgrad: ", value, " is no clampgrad::Gradient");
  return checked(gradient, maximize, name_of(gradient));
}

Extremum parse_extremum(std::string_view name) {
  const auto* const found = std::find(std::begin(kExtrema), std::end(kExtrema), name);
  TORCH_CHECK_VALUE(
      found != std::end(kExtrema), "clampgrad: unknown operator of two Tensors '", name, "'");
  return static_cast<Extremum>(found - std::begin(kExtrema));
}

Gradient parse_exact(std::string_view gradient, std::string_view op) {
  return exact(parse_convention(gradient, /*maximize=*/false).gradient, op, gradient);
}

Gradient checked_exact(Gradient gradient, std::string_view op) {
  const auto c = checked_convention(gradient, /*maximize=*/false);
  return exact(c.gradient, op, name_of(c.gradient));
}

} // namespace clampgrad
