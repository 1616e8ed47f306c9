// Clamps and extrema of Tensors: the front doors, and how a gradient is recorded.

#include "Kernels.h"
#include "Operators.h"
#include "ops/formulas.h"
#include "ops/front_doors.h"
#include "ops/record.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>
#include <torch/version.h>

#include <tuple>

namespace clampgrad {

using at::Tensor;

Tensor aten_extremum(PairOperator op, const Tensor& self, const Tensor& other) {
#define CLAMPGRAD_ATEN(name) at::name,
  constexpr Tensor (*kAten[])(const Tensor&, const Tensor&) = {CLAMPGRAD_EXTREMA(CLAMPGRAD_ATEN)};
#undef CLAMPGRAD_ATEN
  return kAten[static_cast<size_t>(op)](self, other);
}

namespace {

// Runs and records the fused kernel, or returns an undefined Tensor if no kernel accepts the
// arguments. Kernels take plain tensors of one dtype and one shape: promotion and broadcasting are
// operators of their own, whose backward casts and sums.
// `in_place`: the first argument must have the dtype, and no gaps: a tensor with gaps may overlap
// itself, and then an element is read once it is written. `aten`: for modes, see attach_node().
template <size_t n, typename Aten>
Tensor try_fused(
    std::array<Tensor, n> args,
    Convention c,
    bool in_place,
    const Aten& aten,
    PairOperator op = {}) {
  for (const auto& t : args) {
    // Of several devices, or of dtypes that do not promote, torch takes some, and raises its error.
    if (!is_fusable(t) || t.device() != args[0].device() ||
        (t.is_floating_point() && !is_fusable_dtype(t.scalar_type()))) {
      return {};
    }
  }
  const auto dtype = at::native::result_type(args);
  const bool fits =
      !in_place || (dtype == args[0].scalar_type() && args[0].is_non_overlapping_and_dense());
  if (!is_fusable_dtype(dtype) || !fits) {
    return {};
  }
  if (in_place) {
    torch::autograd::check_inplace(args[0], /*requires_grad=*/true);
    for (const auto& t : args) {
      check_no_overlap(args[0], t);
    }
  }
  for (auto& t : args) {
    t = cast(t, dtype);
  }
  const auto y = call_hidden_from_modes([&] { return empty_result(args); });
  for (auto& t : args) {
    t = t.sizes() == y.sizes() ? t : t.expand(y.sizes());
  }
  using Node = std::
      conditional_t<n == 2, autograd::ExtremumRecordedBackward0, autograd::ClampRecordedBackward1>;
  TensorForward<n> call = {c.gradient, 0, op};
  const auto node = std::apply(
      [&](const auto&... t) {
        call.differentiated_mask = static_cast<int>(differentiated_mask_of(t...));
        return autograd::make_node<Node>(t...);
      },
      args);
  if constexpr (n == 2) {
    node->extremum = static_cast<int64_t>(op);
  }
  const auto bits = call_hidden_from_modes([&] { return fused_forward(call, args, y); });
  return attach_node(node, c, y, bits, aten);
}

Tensor fused_clamp(
    const Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    Convention c,
    bool in_place) {
  // Modes see clamp, by which policies of selective checkpointing decide.
  const auto aten = [&] { return at::clamp(self, min, max); };
  if (!is_given(max)) {
    return try_fused<2>({self, *min}, c, in_place, aten, PairOperator::clamp_min);
  }
  if (!is_given(min)) {
    return try_fused<2>({self, *max}, c, in_place, aten, PairOperator::clamp_max);
  }
  return try_fused<3>({self, *min, *max}, c, in_place, aten);
}

} // namespace

Tensor copy_for_backward(const Tensor& t) {
  if (!is_plain(t)) {
    return t;
  }
  if (is_differentiated(t)) {
    return t.clone(); // the backward of expand would sum gradients of repeats
  }
  auto unexpanded = t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0 && t.size(d) > 1) {
      unexpanded = unexpanded.narrow(d, 0, 1);
    }
  }
  const auto copy = unexpanded.clone();
  return unexpanded.is_same(t) ? copy : copy.expand(t.sizes());
}

OptionalTensor copy_for_backward(const OptionalTensor& bound) {
  return is_given(bound) ? copy_for_backward(*bound) : bound;
}

// ---- The front doors ----------------------------------------------------------------------------

Tensor front_door::clamp(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c) {
  if (!should_record(self, min, max)) {
    return values::clamp(self, min, max);
  }
  auto y = fused_clamp(self, min, max, c, /*in_place=*/false);
  return y.defined() ? y
                     : clampgrad::_clamp_composed(
                           copy_for_backward(self),
                           copy_for_backward(min),
                           copy_for_backward(max),
                           name_of(c.gradient),
                           c.maximize);
}

Tensor& front_door::clamp_(
    Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c) {
  if (!should_record(self, min, max)) {
    return values::clamp_(self, min, max);
  }
  const auto has_tangent = [](const Tensor& t) { return t._fw_grad(0).defined(); };
  if (is_mutated_graph_input(self) && !any_tensor(has_tangent, self) &&
      !any_tensor(has_tangent, min) && !any_tensor(has_tangent, max)) {
    torch::autograd::check_inplace(self, /*requires_grad=*/true);
    const auto y = clamp(copy_mutated_input(self), min, max, c);
    check_can_hold_result(self, y);
    return adopt_result(self, y);
  }
  const auto y = fused_clamp(self, min, max, c, /*in_place=*/true);
  return y.defined()
      ? adopt_result(self, y)
      : clampgrad::_clamp_composed_(
            self, copy_for_backward(min), copy_for_backward(max), name_of(c.gradient), c.maximize);
}

Tensor front_door::extremum(
    PairOperator op, const Tensor& self, const Tensor& other, Gradient gradient) {
  if (!any_may_need_gradient(self, other)) {
    return values::extremum(op, self, other);
  }
  const auto aten = [&] { return aten_extremum(op, self, other); };
  auto y = try_fused<2>({self, other}, {gradient, false}, /*in_place=*/false, aten, op);
  return y.defined()
      ? y
      : clampgrad::_extremum_composed(
            copy_for_backward(self), copy_for_backward(other), name_of(op), name_of(gradient));
}

// ---- In place -----------------------------------------------------------------------------------

void check_no_overlap(const Tensor& self, const Tensor& other) {
  if (is_plain(self) && is_plain(other) && !self.is_same(other)) {
    at::assert_no_partial_overlap(self, other);
  }
}

// Note [An input that a graph writes]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// A graph that is differentiated works on a clone of an input that it writes. Inductor removes the
// clone. Before torch 2.15, the partitioner then chooses the input itself as what backward needs,
// if that is smaller than everything computed from it, and backward raises because the input has
// been written. flip copies, too, but no pass removes it, and by default the partitioner recomputes
// nothing before it. So backward gets the copy, or masks computed from it.
//
// Only its autograd history identifies such an input: the first edges of the nodes lead to a clone
// of a leaf. A clone that the program makes looks the same; there backward gets masks or a copy
// too, where it might have got the original. An input that does not require grad has no history.
// Jagged tensors know no flip, and DTensor knows none before 2.13. flip leaves a tensor without
// dimensions to clone.
//
// The portable implementation has the same test, in Python: is_mutated_graph_input() in
// python/clampgrad/_implementation/portable/forward.py. Change both.

bool is_mutated_graph_input(const Tensor& self) {
  constexpr bool is_needed =
      TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13 && TORCH_VERSION_MINOR < 15;
  if (!is_needed || !is_functionalizing() || is_in_transform() || self.layout() != at::kStrided) {
    return false;
  }
  bool is_clone = false;
  auto node = self.grad_fn();
  while (node && node->num_outputs() > 0) {
    is_clone = node->name() == "CloneBackward0";
    node = node->next_edge(0).function;
  }
  return node && is_clone;
}

Tensor copy_mutated_input(const Tensor& self) {
  return self.dim() == 0 ? self.unsqueeze(0).flip(0).squeeze(0) : self.flip(at::DimVector());
}

Tensor& adopt_result(Tensor& self, const Tensor& result) {
  // Cast first: copy_ from another dtype can ignore that self is lazily negated. Do not call `to`
  // if the dtypes agree: below autograd, a mode would see this composite operator, which it
  // normally never sees.
  const bool casts = result.scalar_type() != self.scalar_type();
  call_below_autograd([&] { self.copy_(casts ? result.to(self.scalar_type()) : result); });
  torch::autograd::increment_version(self);
  torch::autograd::impl::rebase_history(self, torch::autograd::impl::gradient_edge(result));
  return self;
}

void check_can_hold_result(const Tensor& self, const Tensor& result) {
  if (result.sym_sizes() != self.sym_sizes() ||
      !at::canCast(result.scalar_type(), self.scalar_type())) {
    // Raises torch's error, or in a graph of AOTAutograd lets torch raise its own afterwards. Below
    // autograd, because a pin would come back here.
    call_below_autograd([&] { at::clamp_min_(const_cast<Tensor&>(self), result); });
  }
}

Tensor native::extremum_composed(
    const Tensor& self, const Tensor& other, std::string_view extremum, std::string_view gradient) {
  const auto op = parse_pair_operator(extremum);
  parse_exact_gradient(gradient, extremum);
  TORCH_CHECK_VALUE(!is_clamp(op), "clampgrad: ", extremum, " is no extremum");
  return aten_extremum(op, self, other);
}

} // namespace clampgrad
