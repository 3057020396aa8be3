// Splits an optimizer's program so that groups of parameters have settings of their own.
#include "plan/ParameterGroups.h"
#include "plan/Programs.h"
#include "support/Error.h"
#include <algorithm>

namespace xfc {
namespace {

// Consecutive elements of the parameter block that are in one group.
struct Span {
  int64_t begin, end;
  int group;
};

// The spans from `begin` to before `end`, which is the range of one launch; frozen ones are left out.
std::vector<Span> spansOf(const Module &module, std::span<const int> groupOf, int64_t begin, int64_t end) {
  std::vector<size_t> order;
  for (size_t i = 0; i < module.parameters.size(); ++i)
    if (module.parameters[i].offset >= begin && module.parameters[i].offset < end)
      order.push_back(i);
  std::ranges::sort(order, {}, [&](size_t i) { return module.parameters[i].offset; });
  std::vector<Span> spans;
  for (size_t i : order) {
    const Parameter &parameter = module.parameters[i];
    const int64_t last = parameter.offset + elementsOf(parameter.shape);
    if (!spans.empty() && spans.back().group == groupOf[i])
      spans.back().end = last; // the gap between them belongs to no parameter, and is 0
    else
      spans.push_back({parameter.offset, last, groupOf[i]});
  }
  std::erase_if(spans, [](const Span &span) { return span.group == frozenGroup; });
  return spans;
}

// For each weight that the launch packs as well: three immediates and, at the end of its buffers, two copies.
constexpr size_t numbersOfWeight = 3, copiesOfWeight = 2;

// Restricts a launch, whose first element in the block is `begin`, to the elements of the span.
Step cutTo(const Span &span, const Step &whole, int64_t begin, int64_t element, int64_t hyperBytes) {
  Step step = whole;
  step.elements = span.end - span.begin;
  for (Place &place : step.buffers)
    if (place.kind == Place::Kind::Parameters || place.kind == Place::Kind::Gradients ||
        place.kind == Place::Kind::State)
      place.offset += (span.begin - begin) * element;
    else if (place.kind == Place::Kind::Argument)
      place.offset += span.group * hyperBytes;
  const auto shared = [&](int64_t value) {
    return static_cast<int64_t>(static_cast<double>(value) * static_cast<double>(step.elements) /
                                static_cast<double>(whole.elements));
  };
  step.flops.constant = shared(whole.flops.constant);
  step.traffic.constant = shared(whole.traffic.constant);
  // A weight that is only partly in the span is packed when it is next read, not here.
  const size_t weights = whole.immediates.size() > 1 ? static_cast<size_t>(whole.immediates[1]) : 0,
               copies = step.buffers.size() - weights * copiesOfWeight;
  step.immediates = {step.elements};
  step.buffers.resize(copies);
  step.strides.resize(copies);
  if (whole.immediates.size() > 1)
    step.immediates.push_back(0);
  for (size_t i = 0; i < weights; ++i) {
    const int64_t *weight = &whole.immediates[2 + i * numbersOfWeight];
    const int64_t first = begin + weight[0], last = first + weight[1] * weight[2];
    if (first < span.begin || last > span.end)
      continue;
    ++step.immediates[1];
    step.immediates.insert(step.immediates.end(), {first - span.begin, weight[1], weight[2]});
    for (size_t copy = copies + i * copiesOfWeight; copy < copies + (i + 1) * copiesOfWeight; ++copy) {
      step.buffers.push_back(whole.buffers[copy]);
      step.strides.push_back(whole.strides[copy]);
    }
  }
  return step;
}

} // namespace

Program inGroups(const Module &module, const Program &update, std::span<const int> groupOf, int count) {
  Program program = update;
  const int64_t element = bytesOf(module.type);
  const auto hyper = std::ranges::find(program.arguments, names::hyper, &Argument::name);
  if (hyper == program.arguments.end())
    throw Error("the program '" + update.name + "' takes no step of an optimizer");
  const int64_t hyperBytes = elementsOf(hyper->shape) * element;
  hyper->shape.insert(hyper->shape.begin(), count);
  program.steps.clear();
  std::vector<int32_t> firsts; // for each old step, the first of the new ones that replace it
  for (const Step &step : update.steps) {
    firsts.push_back(static_cast<int32_t>(program.steps.size()));
    const auto parameters = std::ranges::find(step.buffers, Place::Kind::Parameters, &Place::kind);
    if (parameters == step.buffers.end()) { // the norm, and the factor that clips
      program.steps.push_back(step);
      continue;
    }
    const int64_t begin = parameters->offset / element;
    for (const Span &span : spansOf(module, groupOf, begin, begin + step.elements))
      program.steps.push_back(cutTo(span, step, begin, element, hyperBytes));
  }
  firsts.push_back(static_cast<int32_t>(program.steps.size()));
  for (Buffer &buffer : program.buffers) {
    auto shifted = [&](int32_t step) { return step < static_cast<int32_t>(firsts.size()) ? firsts[step] : step; };
    const int32_t end = shifted(buffer.last + 1);
    buffer.first = shifted(buffer.first);
    // A result that is read after the program is live until one past its last step.
    buffer.last = buffer.last >= static_cast<int32_t>(update.steps.size()) ? static_cast<int32_t>(program.steps.size())
                                                                           : std::max(buffer.first, end - 1);
  }
  return program;
}

} // namespace xfc
