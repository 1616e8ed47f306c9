// A program without Python: what x gets through a clamp to [0, 6], under three conventions.

#include <clampgrad/clampgrad.h>
#include <torch/torch.h>

#include <iostream>

using clampgrad::Gradient;

int main() {
  const auto values = torch::tensor({-1.0, 0.0, 3.0, 6.0, 7.0});
  for (auto gradient : {Gradient::min_norm, Gradient::inclusive, Gradient::with_grad}) {
    auto x = values.clone().requires_grad_();
    clampgrad::clamp(x, 0, 6, gradient).sum().backward();
    std::cout << x.grad().view({1, -1}) << "\n";
  }
}
