// How operators of Tensors are recorded: by the fused kernels in eager mode, elsewhere by operators
// with a node at every level of a transform. What is being differentiated is for that node to see,
// not for us.

#include "Kernels.h"
#include "Operators.h"
#include "autograd/formulas.h"
#include "kernels/constant.h"
#include "kernels/memory_order.h"
#include "ops/recorded.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>

#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <algorithm>

namespace clampgrad {

using at::Tensor;

namespace {

// The memory order of an elementwise result: torch decides it where the arguments differ. It looks
// at them before it broadcasts them: an expanded tensor has strides that the argument did not have.
template <size_t n>
std::optional<int64_t> order_of_result(const std::array<Tensor, n>& args, at::IntArrayRef sizes) {
  const bool alike = std::all_of(args.begin(), args.end(), [&](const Tensor& t) {
    return t.sizes() == args[0].sizes() && t.is_contiguous();
  });
  // The first argument decides where it has strides in every dimension: those of size 1 have none.
  const bool decided = args[0].sizes() == sizes && args[0].is_contiguous() &&
      std::find(sizes.begin(), sizes.end(), 1) == sizes.end();
  if (alike || decided) {
    return kContiguousOrder;
  }
  // A result of no memory.
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(args[0].scalar_type(), at::kMeta)
      .add_owned_output(Tensor());
  for (const auto& t : args) {
    config.add_const_input(t);
  }
  return order_of_strides(config.build().output());
}

// What the fused kernels take: plain tensors of one dtype and one shape, and the order of the
// result. Promotion and broadcasting are operators of their own, whose backward casts and sums.
template <size_t n>
struct Operands {
  std::array<Tensor, n> tensors;
  int64_t order;
};

// `in_place`: the first one is written, so it must be what the kernel takes.
template <size_t n>
std::optional<Operands<n>> for_kernel(std::array<Tensor, n> args, bool in_place) {
  const auto dtype = at::native::result_type(at::TensorList(args.data(), n));
  if (!has_kernels(dtype) || (in_place && args[0].scalar_type() != dtype)) {
    return std::nullopt;
  }
  for (const auto& t : args) {
    // Of several devices, torch takes some (a CPU scalar beside a CUDA tensor) and words the error.
    if (!is_eager(t) || t.device() != args[0].device()) {
      return std::nullopt;
    }
  }
  if (in_place) {
    torch::autograd::check_inplace(args[0], /*requires_grad=*/true);
    for (const auto& t : args) {
      check_no_overlap(args[0], t);
    }
  }
  // Not before: where a compiler traces, sizes are symbols, and asking for a number fixes it.
  auto sizes = args[0].sizes().vec();
  for (auto& t : args) {
    sizes = at::infer_size(sizes, t.sizes());
    t = t.scalar_type() == dtype ? t : t.to(dtype);
  }
  const auto order = order_of_result(args, sizes);
  if (!order || (in_place && args[0].sizes() != at::IntArrayRef(sizes))) {
    return std::nullopt;
  }
  for (auto& t : args) {
    t = t.sizes() == at::IntArrayRef(sizes) ? t : t.expand(sizes);
  }
  return Operands<n>{std::move(args), *order};
}

Tensor pair(const Operands<2>& in, bool greater_wins, PairKind kind, Convention c) {
  const auto& [self, other] = in.tensors;
  const auto codes = pair_codes(kind, c.gradient, differentiated_inputs(self, other));
  return std::get<0>(clampgrad::_extremum_shares(
      self,
      other,
      greater_wins,
      kind == PairKind::nan_skipping_extremum,
      codes.tie,
      codes.nan,
      static_cast<int64_t>(pair_sharing(c, codes)),
      in.order));
}

Tensor triple(const Operands<3>& in, Convention c) {
  const auto& [self, min, max] = in.tensors;
  return std::get<0>(clampgrad::_clamp_shares(
      self,
      min,
      max,
      static_cast<int64_t>(triple_rule(c.gradient)),
      differentiated_inputs(self, min, max),
      static_cast<int64_t>(triple_sharing(c)),
      in.order));
}

// By a kernel; undefined where it takes none of this.
Tensor fused_clamp(
    const Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    Convention c,
    bool in_place) {
  if (is_given(min) && is_given(max)) {
    const auto in = for_kernel<3>({self, *min, *max}, in_place);
    return in ? triple(*in, c) : Tensor();
  }
  const auto in = for_kernel<2>({self, is_given(min) ? *min : *max}, in_place);
  return in ? pair(*in, /*greater_wins=*/is_given(min), PairKind::clamp, c) : Tensor();
}

Tensor fused_extremum(
    const Tensor& self, const Tensor& other, Extremum op, Gradient gradient, bool in_place) {
  const auto in = for_kernel<2>({self, other}, in_place);
  return in ? pair(*in, greater_wins(op), kind_of(op), {gradient, /*maximize=*/false}) : Tensor();
}

} // namespace

// Below autograd these two are torch's own operators.
namespace native {

Tensor clamp_tensors_pinned(
    const Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    int64_t gradient,
    bool) {
  checked_enum<Gradient>(gradient, kGradients);
  return at::clamp(self, min, max);
}
Tensor& clamp_tensors_pinned_(
    Tensor& self, const OptionalTensor& min, const OptionalTensor& max, int64_t gradient, bool) {
  checked_enum<Gradient>(gradient, kGradients);
  return at::clamp_(self, min, max);
}

Tensor extremum_pinned(const Tensor& self, const Tensor& other, int64_t op, int64_t gradient) {
  checked_enum<Gradient>(gradient, kGradients);
  constexpr decltype(&at::maximum) kAtens[] = {at::maximum, at::minimum, at::fmax, at::fmin};
  return kAtens[static_cast<size_t>(checked_enum<Extremum>(op, kExtrema))](self, other);
}
Tensor& extremum_pinned_(Tensor& self, const Tensor& other, int64_t op, int64_t gradient) {
  checked_enum<Gradient>(gradient, kGradients);
  constexpr decltype(&at::maximum_out) kAtens[] = {
      at::maximum_out, at::minimum_out, at::fmax_out, at::fmin_out};
  return kAtens[static_cast<size_t>(checked_enum<Extremum>(op, kExtrema))](self, self, other);
}

} // namespace native

bool is_recorded(const Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  return (is_given(min) || is_given(max)) && any_may_need_gradient(self, min, max);
}

bool is_recorded(const Tensor& self, const Tensor& bound) {
  TORCH_CHECK_VALUE(bound.defined(), "clamp_min and clamp_max need a bound");
  return any_may_need_gradient(self, bound);
}

Tensor recorded_clamp(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c) {
  if (auto y = fused_clamp(self, min, max, c, /*in_place=*/false); y.defined()) {
    return y;
  }
  // A plain tensor may be changed after the call, also where no kernel has taken it.
  return clampgrad::_clamp_tensors_pinned(
      is_plain(self) ? self.clone() : self, min, max, static_cast<int64_t>(c.gradient), c.maximize);
}

void check_no_overlap(const Tensor& self, const Tensor& other) {
  if (is_plain(self) && is_plain(other) && !self.is_same(other)) {
    at::assert_no_partial_overlap(self, other);
  }
}

Tensor on_device_of(const Tensor& other, const Tensor& t) {
  return t.dim() == 0 && t.device() != other.device() && t.device().is_cpu() ? t.to(other.device())
                                                                             : t;
}

Tensor& hand_over(Tensor& self, const Tensor& result) {
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    self.copy_(result);
  }
  torch::autograd::increment_version(self);
  torch::autograd::impl::rebase_history(self, torch::autograd::impl::gradient_edge(result));
  return self;
}

void check_fits(const Tensor& self, const Tensor& result) {
  if (result.sym_sizes() != self.sym_sizes() ||
      !at::canCast(result.scalar_type(), self.scalar_type())) {
    const at::AutoDispatchBelowADInplaceOrView guard; // where a pin would come back here
    auto& unchanged = const_cast<Tensor&>(self);
    at::clamp_min_(unchanged, result); // which raises
  }
}

Tensor& assign(Tensor& self, const Tensor& result) {
  check_fits(self, result);
  return self.copy_(result);
}

Tensor& recorded_clamp_(
    Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c) {
  if (in_transform()) {
    return assign(self, recorded_clamp(self.clone(), min, max, c));
  }
  if (const auto y = fused_clamp(self, min, max, c, /*in_place=*/true); y.defined()) {
    return hand_over(self, y);
  }
  return clampgrad::_clamp_tensors_pinned_(
      self, min, max, static_cast<int64_t>(c.gradient), c.maximize);
}

Tensor recorded_extremum(const Tensor& self, const Tensor& other, Extremum op, Gradient gradient) {
  if (auto y = fused_extremum(self, other, op, gradient, /*in_place=*/false); y.defined()) {
    return y;
  }
  return clampgrad::_extremum_pinned(
      is_plain(self) ? self.clone() : self,
      is_plain(other) ? other.clone() : other,
      static_cast<int64_t>(op),
      static_cast<int64_t>(gradient));
}

Tensor& recorded_extremum_(Tensor& self, const Tensor& other, Extremum op, Gradient gradient) {
  if (in_transform()) {
    return assign(self, recorded_extremum(self.clone(), other, op, gradient));
  }
  const auto y = any_may_need_gradient(self, other)
      ? fused_extremum(self, other, op, gradient, /*in_place=*/true)
      : Tensor();
  if (y.defined()) {
    return hand_over(self, y);
  }
  return clampgrad::_extremum_pinned_(
      self, other, static_cast<int64_t>(op), static_cast<int64_t>(gradient));
}

} // namespace clampgrad
