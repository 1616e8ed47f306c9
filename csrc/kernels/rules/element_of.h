// From a scalar type to what a rule knows of it. Comes after rules/element.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename T>
struct ElementOf : Real<T> {};
template <>
struct ElementOf<c10::Half> : Short<10> {};
template <>
struct ElementOf<c10::BFloat16> : Short<7> {};

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
