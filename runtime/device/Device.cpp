// Access to results, and how launches appear in the timeline.
#include "device/Device.h"
#include "support/Error.h"

namespace xfc {

double View::at(int64_t i, int64_t j) const { return numberAt(output->type, data, i * stride + j); }

[[noreturn]] static void noPeers() { throw Error("a device that uses host memory has no peers"); } // an internal error
std::string Device::identity() const { noPeers(); }
std::string Device::newGroup() { noPeers(); }
std::unique_ptr<Peers> Device::join(const std::string &, int, int) { noPeers(); }

TraceEvent eventOf(const Kernel &kernel, const Program *program, const Step *step, const Counts &counts, bool reduces) {
  TraceEvent event{.kind = "kernel", .name = kernel.name};
  event.place = step ? std::string_view(step->location) : "packing weights";
  if (program)
    event.program = program->name;
  if (!step)
    return event;
  event.rows = counts.rows[step->set];
  if (!reduces) {
    event.flops = static_cast<double>(evaluate(step->flops, counts));
    event.bytes = static_cast<double>(evaluate(step->traffic, counts));
  }
  return event;
}

} // namespace xfc
