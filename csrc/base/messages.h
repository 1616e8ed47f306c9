#pragma once
// The texts of errors that both implementations raise. {} stands for an argument.
//
// A build copies them for the portable one, which has them by these names
// (python/clampgrad/_contract/messages.py).

#include <c10/util/StringUtil.h>

#include <string>
#include <string_view>

namespace clampgrad::messages {

// Returns the text with an argument in place of each {}.
template <typename... Args>
std::string format(std::string_view text, const Args&... args) {
  std::string message;
  const auto append = [&](const auto& arg) {
    const auto end = text.find("{}");
    message.append(text.substr(0, end)).append(c10::str(arg));
    text.remove_prefix(end + 2);
  };
  (append(args), ...);
  return message.append(text);
}

// ---- Conventions --------------------------------------------------------------------------------

constexpr char kMaximizeDoesNotApply[] =
    "maximize=True does not apply to gradient='{}': only 'with_grad' and 'restoring' depend on "
    "whether the loss is maximised";
constexpr char kForClampsOnly[] = "gradient='{}' is defined for clamps only, not for {}";
constexpr char kNotLinear[] =
    "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring', which "
    "are not linear in the incoming gradient";

// ---- Calls --------------------------------------------------------------------------------------

constexpr char kRoundsBetweenSteps[] =
    "clampgrad: clamp_ would round what min makes of its input to {} before max is compared, and "
    "so see other ties than clamp does. Call clamp, or convert min";
constexpr char kNotTraced[] =
    "clampgrad: torch.jit.trace would keep what this clamp saved in the forward as a constant, "
    "for all inputs. Call clampgrad's function, out of place and not pinned, or use make_fx";
constexpr char kInputNotBatched[] =
    "vmap: inplace clamp is not possible where a bound is batched and what is written is not";
constexpr char kBoundHasMoreDims[] =
    "vmap: inplace clamp is not possible where a bound has more dimensions than what is written";

// ---- Pins ---------------------------------------------------------------------------------------

constexpr char kTaskOfOtherThread[] =
    "clampgrad.pin: this runs in a thread of PyTorch's own, for a task of an event loop where "
    "tasks are in blocks of their own, and only the thread of the loop can tell them apart. Put "
    "the block around the loop, or pin the process (clampgrad.set_pin)";
constexpr char kTorchScriptDifferentiates[] =
    "clampgrad.pin: TorchScript differentiates this clamp by a rule of its own, which no pin "
    "reaches. Call the function that was scripted, or take the pin off around the script.";
constexpr char kNoPinForLists[] =
    "clampgrad.pin: no pin reaches a list of tensors. Call the operator for each of them, not {}, "
    "or take the pin off around this call (`with clampgrad.pin(None)`)";
constexpr char kOwnAutogradKernel[] =
    "clampgrad.pin: {} has an autograd kernel of its own at {}, which a pin cannot reach";

} // namespace clampgrad::messages
