#pragma once
// torch's headers of functorch include this library without bringing it (2.11 to 2.15 at least),
// for functions that nobody here calls: Interpreter::serialize and deserialize. What their
// declarations need, and no definition: whoever calls them finds out when linking.

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
