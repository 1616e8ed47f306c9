#pragma once
// torch's headers of functorch include this library without bringing it, for functions that nobody
// here calls. What their declarations need, and no definition: a call would fail to link.

#include <string>

namespace nlohmann {

struct json {
  json();
  template <typename T>
  explicit json(const T&);
  static json parse(const std::string&);
  std::string dump() const;
  template <typename T>
  T get() const;
};

} // namespace nlohmann
