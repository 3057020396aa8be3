// Prints a serialized plan in the notation of the plan dialect.
#include "PlanText.h"
#include "Dialect/Values.h"
#include "PlanDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace xfc {
namespace {

class PlanPrinter {
public:
  PlanPrinter(const Module &plan, llvm::raw_ostream &out)
      : plan(plan), out(out), context(MLIRContext::Threading::DISABLED) {
    context.loadDialect<XFCDialect, PlanDialect>();
  }

  void print() {
    out << "model \"" << plan.model << "\" " << nameOf(plan.type) << " in " << plan.compute << "\n";
    printParameters();
    for (const Kernel &kernel : plan.kernels)
      printKernel(kernel);
    for (auto [i, packed] : llvm::enumerate(plan.packed))
      out << "packed_weight " << i << " = @" << plan.kernels[packed.kernel].name << "(" << text(packed.source, 0)
          << ") {bytes = " << packed.bytes << ", chunks = " << packed.chunks << "}\n";
    for (auto [i, table] : llvm::enumerate(plan.tables))
      out << "table " << i << " = " << table.rows << " x " << table.dim << " {base = " << table.base
          << ", exponent_multiplier = " << table.exponentMultiplier << ", cosine_offset = " << table.cosineOffset
          << (table.halves ? ", halves}" : "}") << "\n";
    for (size_t i = 0; i < plan.programs.size(); ++i)
      print(plan.programs[i]);
  }

private:
  void printParameters() {
    out << "parameters " << plan.parameterElements << " x " << nameOf(plan.type) << " {\n";
    for (const Parameter &parameter : plan.parameters) {
      out << "  parameter @" << parameter.name << " at " << parameter.offset << " : "
          << tensor(parameter.shape, plan.type) << " init " << parameter.init;
      if (parameter.fanIn || parameter.fanOut)
        out << " fan_in " << parameter.fanIn << " fan_out " << parameter.fanOut;
      for (const std::string &alias : parameter.aliases)
        out << " tied to @" << alias;
      out << "\n";
    }
    for (const OptimizerState &state : plan.states) {
      out << "  state \"" << state.name << "\"";
      if (state.type != plan.type)
        out << " in " << nameOf(state.type);
      if (state.likeParameters) {
        out << "\n";
        continue;
      }
      out << " " << state.elements << " {\n";
      for (const OptimizerState::Part &part : state.parts)
        out << "    part @" << plan.parameters[part.parameter].name << " at " << part.offset << " : "
            << tensor(part.shape, plan.type) << "\n";
      out << "  }\n";
    }
    out << "}\n";
  }

  void printKernel(const Kernel &kernel) {
    out << "kernel @" << kernel.name << " {partition = " << inner(PartitionAttr::get(&context, kernel.partition));
    if (kernel.scratch)
      out << ", scratch = " << kernel.scratch;
    if (kernel.threads)
      out << ", threads = " << kernel.threads;
    if (kernel.small >= 0)
      out << ", small = @" << plan.kernels[kernel.small].name << ", small_rows = " << kernel.smallRows;
    if (kernel.reduction >= 0)
      out << ", reduction = @" << plan.kernels[kernel.reduction].name;
    if (kernel.resident)
      out << ", resident";
    if (!kernel.bodies.empty()) {
      out << ", bodies = [";
      llvm::interleaveComma(kernel.bodies, out, [&](int32_t body) { out << "@" << plan.kernels[body].name; });
      out << "]";
    }
    out << "}\n";
  }

  void print(const Program &program) {
    out << "program @" << program.name << (program.rowByRow ? " row_by_row" : "");
    if (program.persistent >= 0)
      out << " persistent @" << plan.kernels[program.persistent].name;
    out << " {\n";
    for (auto [i, argument] : llvm::enumerate(program.arguments)) {
      constexpr const char *roles[] = {"input", "scalar", "state"};
      out << "  argument " << i << " : \"" << argument.name << "\" " << roles[static_cast<int>(argument.role)] << " "
          << type(argument.set, -1, argument.shape, argument.type) << "\n";
    }
    for (auto [i, buffer] : llvm::enumerate(program.buffers))
      out << "  buffer " << i << " : " << inner(SizeAttr::get(&context, buffer.size)) << " from " << buffer.first
          << " to " << buffer.last << "\n";
    for (const Step &step : program.steps)
      print(step);
    for (const Output &output : program.outputs)
      out << "  return \"" << output.name << "\" at " << text(output.place, output.stride) << " : "
          << type(output.set, output.keys, output.shape, output.type) << "\n";
    out << "}\n";
  }

  void print(const Step &step) {
    out << "  launch @" << plan.kernels[step.kernel].name << " over "
        << inner(DomainAttr::get(&context, static_cast<RowSet>(step.set), static_cast<RowSet>(step.keySet), step.keys));
    out << " at [";
    for (size_t i = 0; i < step.buffers.size(); ++i)
      out << (i ? ", " : "") << text(step.buffers[i], step.strides[i]);
    out << "] {";
    if (step.dropout)
      out << "dropout = " << step.dropout << ", ";
    if (step.elements)
      out << "elements = " << step.elements << ", ";
    printList("tensors", ArrayRef(step.tensors), [&](const xfc_parted_tensor &tensor) {
      return TensorAttr::get(&context, tensor.first, tensor.rows, tensor.columns, tensor.per, tensor.parts,
                             tensor.matrix, tensor.group);
    });
    printList("repacked", ArrayRef(step.repacked), [&](const xfc_repacked_weight &weight) {
      return RepackedAttr::get(&context, weight.first, weight.rows, weight.columns);
    });
    out << "flops = " << inner(SizeAttr::get(&context, step.flops))
        << ", traffic = " << inner(SizeAttr::get(&context, step.traffic));
    if (step.weight >= 0)
      out << ", weight = " << step.weight << " of " << step.weightBytes << " bytes";
    if (!step.after.empty()) {
      out << ", after = [";
      llvm::interleaveComma(step.after, out);
      out << "]";
    }
    out << "}";
    for (const LaunchResult &result : step.results)
      out << (&result == &step.results.front() ? " -> " : ", ") << result.buffer << " : "
          << type(result.set, result.keys, {result.width}, result.type);
    if (!step.location.empty())
      out << " loc(\"" << step.location << "\")";
    out << "\n";
  }

  template <typename Item, typename AttributeOf>
  void printList(StringRef name, ArrayRef<Item> items, AttributeOf attributeOf) {
    if (items.empty())
      return;
    out << name << " = [";
    llvm::interleaveComma(items, out, [&](const Item &item) { out << attributeOf(item); });
    out << "], ";
  }

  std::string tensor(ArrayRef<int64_t> shape, DType type) {
    return text(RankedTensorType::get(shape, elementType(&context, type)));
  }
  std::string type(int8_t set, int16_t keys, const std::vector<int64_t> &shape, DType of) {
    const Type element = elementType(&context, of);
    if (set >= 0)
      return text(RowsType::get(&context, static_cast<RowSet>(set), shape, element));
    if (keys >= 0)
      return "pairs " + std::to_string(keys) + " x " + std::to_string(shape.front()) + "x" + text(element);
    return tensor(shape, of);
  }
  std::string text(const Place &place, int64_t stride) { return inner(PlaceAttr::get(&context, place, stride)); }

  template <typename Printed> static std::string text(Printed printed) {
    std::string result;
    llvm::raw_string_ostream(result) << printed;
    return result;
  }
  // The text of an attribute, without its name and the angle brackets.
  static std::string inner(Attribute attribute) {
    const std::string whole = text(attribute);
    const size_t begin = whole.find('<') + 1;
    return whole.substr(begin, whole.rfind('>') - begin);
  }

  const Module &plan;
  llvm::raw_ostream &out;
  MLIRContext context;
};

} // namespace

std::string planText(const Module &plan) {
  std::string text;
  llvm::raw_string_ostream out(text);
  PlanPrinter(plan, out).print();
  return text;
}

} // namespace xfc
