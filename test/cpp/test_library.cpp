// The C++ functions: the examples of docs/conventions.md, every kind of bound, errors, threads.

#include <clampgrad/clampgrad.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <iostream>
#include <thread>
#include <vector>

using clampgrad::Gradient;
using torch::Tensor;

namespace {

int failures = 0;

void check(bool holds, const char* what, int line) {
  if (!holds) {
    std::cerr << "line " << line << ": " << what << "\n";
    ++failures;
  }
}
#define EXPECT(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

Tensor leaf(const std::vector<float>& values) {
  return torch::tensor(values).requires_grad_();
}

bool is(const Tensor& tensor, const std::vector<float>& values) {
  return torch::equal(tensor, torch::tensor(values));
}

template <typename F>
Tensor slope(F f, const std::vector<float>& at) {
  auto x = leaf(at);
  f(x).sum().backward();
  return x.grad();
}

template <typename Error, typename F>
bool raises(F f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void conventions() {
  const std::vector<std::pair<Gradient, std::vector<float>>> expected = {
      {Gradient::min_norm, {0, 0, 1, 0, 0}},
      {Gradient::inclusive, {0, 1, 1, 1, 0}},
      {Gradient::joint, {0, 0, 1, 0, 0}},
      {Gradient::half, {0, 0.5, 1, 0.5, 0}},
      {Gradient::with_grad, {0, 1, 1, 1, 1}},
      {Gradient::restoring, {-1, 1, 1, 1, 1}},
      {Gradient::straight_through, {1, 1, 1, 1, 1}}};
  for (const auto& [gradient, factors] : expected) {
    auto f = [g = gradient](const Tensor& x) { return clampgrad::clamp(x, 0, 6, g); };
    EXPECT(is(slope(f, {-1, 0, 3, 6, 7}), factors));
    auto in_place = [g = gradient](const Tensor& x) {
      auto y = x.clone();
      return clampgrad::clamp_(y, 0, 6, g);
    };
    EXPECT(is(slope(in_place, {-1, 0, 3, 6, 7}), factors));
  }
}

void defaults() {
  EXPECT(is(slope([](auto& x) { return clampgrad::clamp(x, 0, 6); }, {0, 3, 6}), {0, 1, 0}));
  EXPECT(is(slope([](auto& x) { return clampgrad::clip(x, 0.0, 6.0f); }, {0, 3}), {0, 1}));
  EXPECT(is(slope([](auto& x) { return clampgrad::clamp(x, 0); }, {0, 3, 9}), {0, 1, 1}));
  EXPECT(is(slope([](auto& x) { return clampgrad::clamp(x, {}, 6); }, {0, 6}), {1, 0}));
  EXPECT(is(slope([](auto& x) { return clampgrad::clamp_min(x, 0); }, {0, 3}), {0, 1}));
  EXPECT(is(slope([](auto& x) { return clampgrad::clamp_max(x, 6); }, {3, 6}), {1, 0}));
  EXPECT(is(slope([](auto& x) { return clampgrad::clamp_with_grad(x, 0, 1); }, {-1, 2}), {0, 1}));
  auto ascent = [](auto& x) { return clampgrad::clamp_with_grad(x, 0, 1, true); };
  EXPECT(is(slope(ascent, {-1, 2}), {1, 0}));
}

void tensors() {
  auto x = leaf({0, 1, 2}), lo = leaf({0, 0, 0}), hi = leaf({1, 1, 1});
  clampgrad::clamp(x, lo, hi).sum().backward();
  EXPECT(is(x.grad(), {0.5, 0.5, 0}));
  EXPECT(is(lo.grad(), {0.5, 0, 0}));
  EXPECT(is(hi.grad(), {0, 0.5, 1}));

  auto y = leaf({0, 1, 2}), bound = leaf({0, 0, 0}); // one number and one Tensor
  clampgrad::clamp(y, bound, 1, Gradient::half).sum().backward();
  EXPECT(is(y.grad(), {0.5, 0.5, 0}));
  EXPECT(is(bound.grad(), {0.5, 0, 0}));

  auto raised = leaf({0, 1}), floor = leaf({0, 0});
  auto in_place = raised.clone();
  clampgrad::clamp_min_(in_place, floor).sum().backward();
  EXPECT(is(raised.grad(), {0.5, 1}));
  EXPECT(is(floor.grad(), {0.5, 0}));
}

void pairs() {
  const auto zero = torch::zeros({1});
  auto x = leaf({0}), y = leaf({0});
  (clampgrad::maximum(x, y) + clampgrad::fmin(x, y)).sum().backward();
  EXPECT(is(x.grad(), {1}));
  EXPECT(is(y.grad(), {1}));
  EXPECT(is(slope([&](auto& x) { return clampgrad::maximum(x, zero); }, {0}), {0}));
  EXPECT(
      is(slope([&](auto& x) { return clampgrad::minimum(x, zero, Gradient::half); }, {0}), {0.5}));
  EXPECT(
      is(slope([&](auto& x) { return clampgrad::fmax(x, zero, Gradient::inclusive); }, {0}), {1}));
}

void out() {
  const auto x = torch::tensor({-1.0f, 0.5f, 2.0f}), zero = torch::zeros({3});
  auto result = torch::empty({3});
  EXPECT(is(clampgrad::clamp_out(result, x, 0, 1), {0, 0.5, 1}));
  EXPECT(is(clampgrad::clamp_out(result, x, zero, 1), {0, 0.5, 1}));
  EXPECT(is(clampgrad::clamp_min_out(result, x, 0), {0, 0.5, 2}));
  EXPECT(is(clampgrad::clamp_max_out(result, x, zero), {-1, 0, 0}));
  EXPECT(is(clampgrad::maximum_out(result, x, zero), {0, 0.5, 2}));
  EXPECT(is(clampgrad::fmin_out(result, x, zero), {-1, 0, 0}));
  EXPECT(is(result, {-1, 0, 0}));
}

void errors() {
  const auto x = torch::ones({2});
  EXPECT(raises<c10::ValueError>([&] { clampgrad::clamp(x, 0, 1, Gradient::half, true); }));
  EXPECT(raises<c10::ValueError>([&] { clampgrad::maximum(x, x, Gradient::restoring); }));
  EXPECT(raises<c10::ValueError>([&] { clampgrad::clamp_min(x, {}); }));
  EXPECT(raises<c10::Error>([&] { clampgrad::clamp(x, {}); }));
  EXPECT(raises<c10::ValueError>([&] { clampgrad::clamp(x, 0, 1, static_cast<Gradient>(7)); }));
}

void no_bound() {
  const Tensor none;
  auto lower = [&](const Tensor& x) { return clampgrad::clamp(x, none, 1, Gradient::inclusive); };
  EXPECT(is(slope(lower, {-1, 1, 2}), {1, 1, 0}));
  auto upper = [&](const Tensor& x) {
    return clampgrad::clamp(x, torch::zeros(3), none, Gradient::inclusive);
  };
  EXPECT(is(slope(upper, {-1, 0, 2}), {0, 1, 1}));
  const auto x = torch::ones(3);
  auto y = x.clone();
  EXPECT(raises<c10::Error>([&] { clampgrad::clamp(x, none, std::nullopt); }));
  EXPECT(raises<c10::Error>([&] { clampgrad::clamp(leaf({1}), none); }));
  EXPECT(raises<c10::Error>([&] { clampgrad::clamp_(y, none, none); }));
  EXPECT(raises<c10::Error>([&] { clampgrad::clamp_min(x, none); }));
  EXPECT(raises<c10::Error>([&] { clampgrad::clamp_max_(y, none); }));
}

void mixed() {
  for (const auto gradient : {Gradient::min_norm, Gradient::joint}) {
    auto lo = leaf({0, 0, 0});
    auto x = leaf({-1, 0, 2});
    clampgrad::clamp(x, lo, 1, gradient).sum().backward();
    EXPECT(is(x.grad(), {0, 0.5, 0}) && is(lo.grad(), {1, 0.5, 0}));
    auto y = leaf({-1, 0, 2});
    auto z = y * 1;
    clampgrad::clamp_(z, 0, torch::ones(3), gradient).sum().backward();
    EXPECT(is(y.grad(), {0, 0, 0}) && is(z.detach(), {0, 0, 1}));
  }
}

void aliases() {
  static_assert(Gradient::jax == Gradient::half);
}

void second_order() {
  auto x = leaf({0.5, 1});
  auto y = clampgrad::clamp(x, 0, 1).pow(3).sum();
  auto first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
  auto second = torch::autograd::grad({first.sum()}, {x})[0];
  EXPECT(is(second, {3, 0}));
}

void threads() {
  std::vector<std::thread> pool;
  std::vector<int> good(8, 0);
  for (int i = 0; i < 8; ++i) {
    pool.emplace_back([i, &good] {
      const auto gradient = i % 2 ? Gradient::half : Gradient::inclusive;
      for (int n = 0; n < 100; ++n) {
        auto f = [&](const Tensor& x) { return clampgrad::clamp(x, 0, 1, gradient); };
        good[i] += is(slope(f, {0, 0.5, 2}), {i % 2 ? 0.5f : 1.0f, 1, 0});
      }
    });
  }
  for (auto& thread : pool) {
    thread.join();
  }
  EXPECT(good == std::vector<int>(8, 100));
}

} // namespace

int main() {
  conventions();
  defaults();
  tensors();
  pairs();
  out();
  errors();
  no_bound();
  mixed();
  aliases();
  second_order();
  threads();
  return failures != 0;
}
