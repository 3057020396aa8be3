// Splits an optimizer's program, by groups of parameters and by the shares of ranks.
#include "plan/SplitUpdate.h"
#include "plan/Programs.h"
#include "support/Error.h"
#include <algorithm>

namespace xfc {
namespace {

// Consecutive elements of the parameter block that are in one group.
struct Span : Range {
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
      spans.push_back({{parameter.offset, last}, groupOf[i]});
  }
  std::erase_if(spans, [](const Span &span) { return span.group == frozenGroup; });
  return spans;
}

// For each weight that the launch packs as well, its buffers end with two copies.
constexpr size_t copiesOfWeight = 2;

// The bytes of an element of the block of parameters, gradients or a state that a place is in.
int64_t bytesOfElement(const Module &module, const Place &place) {
  return bytesOf(place.kind == Place::Kind::State ? module.states[place.index].type : module.type);
}

// Restricts a launch, whose first element in the block is `begin`, to the elements of the range.
Step cutTo(const Module &module, const Range &range, const Step &whole, int64_t begin) {
  Step step = whole;
  step.elements = range.size();
  for (Place &place : step.buffers)
    if (place.kind == Place::Kind::Parameters || place.kind == Place::Kind::Gradients ||
        place.kind == Place::Kind::State)
      place.offset += (range.begin - begin) * bytesOfElement(module, place);
  const auto shared = [&](int64_t value) {
    return static_cast<int64_t>(static_cast<double>(value) * static_cast<double>(step.elements) /
                                static_cast<double>(whole.elements));
  };
  step.flops.constant = shared(whole.flops.constant);
  step.traffic.constant = shared(whole.traffic.constant);
  // A weight that is only partly in the range is packed when it is next read, not here.
  const size_t copies = step.buffers.size() - whole.repacked.size() * copiesOfWeight;
  step.repacked.clear();
  step.buffers.resize(copies);
  step.strides.resize(copies);
  std::erase_if(step.results, [&](const LaunchResult &result) { return static_cast<size_t>(result.buffer) >= copies; });
  for (size_t i = 0; i < whole.repacked.size(); ++i) {
    const xfc_repacked_weight &weight = whole.repacked[i];
    const int64_t first = begin + weight.first, last = first + weight.rows * weight.columns;
    if (first < range.begin || last > range.end)
      continue;
    step.repacked.push_back({first - range.begin, weight.rows, weight.columns});
    for (size_t copy = copies + i * copiesOfWeight; copy < copies + (i + 1) * copiesOfWeight; ++copy) {
      step.buffers.push_back(whole.buffers[copy]);
      step.strides.push_back(whole.strides[copy]);
    }
  }
  return step;
}

[[noreturn]] void damaged(const Program &program) {
  throw Error("the program '" + program.name + "' is damaged; compile the model again");
}

// The parameter whose value, gradient or state lies at the place; their number if there is none.
size_t parameterAt(const Module &module, const Place &place) {
  const int64_t offset = place.offset / bytesOfElement(module, place);
  if (place.kind == Place::Kind::State)
    for (const OptimizerState::Part &part : module.partsOf(module.states[place.index]))
      if (part.offset == offset)
        return part.parameter;
  return std::ranges::find(module.parameters, offset, &Parameter::offset) - module.parameters.begin();
}

// Tells a launch that takes tensors one by one the groups of their parameters. The first of its buffers that are not
// common to all tensors are one of each, in their order.
Step withGroups(const Module &module, const Program &program, const Step &whole, std::span<const int> groupOf) {
  Step step = whole;
  const auto first = std::ranges::find_if(step.buffers, [](const Place &place) {
    return place.kind == Place::Kind::Parameters || place.kind == Place::Kind::Gradients ||
           place.kind == Place::Kind::State;
  });
  if (std::ssize(step.tensors) > step.buffers.end() - first)
    damaged(program);
  for (size_t i = 0; i < step.tensors.size(); ++i) {
    const size_t parameter = parameterAt(module, first[i]);
    if (parameter >= groupOf.size())
      damaged(program);
    step.tensors[i].group = groupOf[parameter];
  }
  return step;
}

// The first of the step's places of this kind, or null.
const Place *placeOf(const Step &step, Place::Kind kind) {
  const auto place = std::ranges::find(step.buffers, kind, &Place::kind);
  return place == step.buffers.end() ? nullptr : &*place;
}

// The program with each step replaced by those that `replace` makes of it.
template <typename Replace> Program withSteps(const Program &update, Replace replace) {
  Program program = update;
  program.steps.clear();
  std::vector<int32_t> firsts; // for each old step, the first of the new ones that replace it
  for (const Step &step : update.steps) {
    firsts.push_back(static_cast<int32_t>(program.steps.size()));
    replace(step, program.steps);
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

} // namespace

Program inGroups(const Module &module, const Program &update, std::span<const int> groupOf, int count) {
  const int64_t element = bytesOf(module.type);
  const auto hyper = std::ranges::find(update.arguments, names::hyper, &Argument::name);
  if (hyper == update.arguments.end())
    throw Error("the program '" + update.name + "' takes no step of an optimizer");
  const int64_t hyperBytes = elementsOf(hyper->shape) * element;
  Program program = withSteps(update, [&](const Step &step, std::vector<Step> &steps) {
    if (!step.tensors.empty()) {
      steps.push_back(withGroups(module, update, step, groupOf));
      return;
    }
    const Place *parameters = placeOf(step, Place::Kind::Parameters);
    if (!parameters) { // the norm, and the factor that clips
      steps.push_back(step);
      return;
    }
    const int64_t begin = parameters->offset / element;
    for (const Span &span : spansOf(module, groupOf, begin, begin + step.elements)) {
      steps.push_back(cutTo(module, span, step, begin));
      for (Place &place : steps.back().buffers)
        if (place.kind == Place::Kind::Argument)
          place.offset += span.group * hyperBytes;
    }
  });
  std::vector<int64_t> &shape = program.arguments[hyper - update.arguments.begin()].shape;
  shape.insert(shape.begin(), count);
  return program;
}

// The step that computes the partial sums: the only one that reads gradients without updating parameters. Null if there
// are several, or the sums are not of the whole block.
static const Step *squaresOf(const Module &module, const Program &update) {
  const Step *found = nullptr;
  int64_t end = 0; // of the last parameter
  for (const Parameter &parameter : module.parameters)
    end = std::max(end, parameter.offset + elementsOf(parameter.shape));
  for (const Step &step : update.steps) {
    const Place *gradients = placeOf(step, Place::Kind::Gradients);
    if (!gradients || placeOf(step, Place::Kind::Parameters))
      continue;
    if (found || gradients->offset != 0 || step.elements < end)
      return nullptr;
    found = &step;
  }
  return found;
}

bool canShare(const Module &module, const Program &update) { return squaresOf(module, update) != nullptr; }

ShareOfUpdate inShare(const Module &module, const Program &update, std::span<const Range> owned) {
  const int64_t element = bytesOf(module.type);
  const Step *squares = squaresOf(module, update);
  ShareOfUpdate share;
  share.squares = *placeOf(*squares, Place::Kind::Arena);
  share.parts = (squares->elements + squarePart - 1) / squarePart;
  // Cuts a launch, whose first element in the block is `begin`, to what is owned of it.
  const auto cut = [&](const Step &step, int64_t begin, std::vector<Step> &steps, auto change) {
    int64_t before = 0; // owned elements before the range
    for (const Range &range : owned) {
      const Range common = {std::max(range.begin, begin), std::min(range.end, begin + step.elements)};
      if (common.size() > 0) {
        steps.push_back(cutTo(module, common, step, begin));
        change(steps.back(), common.begin, before + common.begin - range.begin);
      }
      before += range.size();
    }
  };
  share.program = withSteps(update, [&](const Step &step, std::vector<Step> &steps) {
    if (&step == squares) {
      cut(step, 0, steps, [&](Step &part, int64_t begin, int64_t) {
        std::ranges::find(part.buffers, Place::Kind::Arena, &Place::kind)->offset +=
            begin / squarePart * static_cast<int64_t>(sizeof(double));
      });
      share.clips = static_cast<int64_t>(steps.size());
    } else if (const Place *parameters = placeOf(step, Place::Kind::Parameters)) {
      cut(step, parameters->offset / element, steps, [&](Step &part, int64_t, int64_t place) {
        for (Place &of : part.buffers)
          if (of.kind == Place::Kind::State)
            of.offset = place * bytesOfElement(module, of);
      });
    } else {
      steps.push_back(step);
    }
  });
  return share;
}

} // namespace xfc
