// Draws which buffers of a step lie where in the arena, and when.
#include "train/MemoryMap.h"
#include "plan/Layout.h"
#include "support/Error.h"
#include "support/Format.h"
#include "support/Markup.h"
#include "train/Chart.h"
#include <algorithm>
#include <map>

namespace xfc {

MemoryMap memoryMap(const Module &module, const std::vector<std::string> &programs, const Counts &counts) {
  MemoryMap map;
  for (const std::string &name : programs) {
    const Program *program = module.find(name);
    if (!program)
      throw Error("this executable has no program '" + name + "'");
    const Layout layout = plan(module, *program, counts);
    const auto begin = static_cast<int64_t>(map.live.size());
    map.programs.emplace_back(name, begin);
    map.live.resize(map.live.size() + program->steps.size(), 0);
    map.arena = std::max(map.arena, layout.bytes);
    const auto end = static_cast<int64_t>(program->steps.size()) - 1;
    const auto add = [&](int64_t offset, int64_t bytes, int64_t first, int64_t last) {
      first = std::clamp<int64_t>(first, 0, end);
      last = std::min<int64_t>(last, end); // a result lives on after the last launch
      if (bytes <= 0)
        return;
      const Step &writer = program->steps[first];
      map.buffers.push_back(
          {offset, bytes, begin + first, begin + last, module.kernels[writer.kernel].name, writer.location});
      for (int64_t at = begin + first; at <= begin + last; ++at)
        map.live[at] += bytes;
    };
    for (size_t i = 0; i < program->buffers.size() && end >= 0; ++i) {
      const Buffer &buffer = program->buffers[i];
      add(layout.offsets[i], evaluate(buffer.size, counts), buffer.first, buffer.last);
    }
    if (end >= 0)
      for (const GradientPart &part : gradientsOf(module, *program))
        add(part.begin, part.end - part.begin, part.first, end);
  }
  return map;
}

std::string memoryMapSvg(const MemoryMap &map) {
  constexpr double width = 960, height = 380, left = 62, right = 8, top = 20, bottom = 34;
  const double launches = static_cast<double>(std::max<size_t>(map.live.size(), 1)),
               arena = static_cast<double>(std::max<int64_t>(map.arena, 1));
  auto placeX = [&](double launch) { return left + launch / launches * (width - left - right); };
  auto placeY = [&](double address) { return height - bottom - address / arena * (height - top - bottom); };

  // What the parts of a model are colored by: encoder, decoder ...
  std::map<std::string, int> colors;
  std::vector<std::string> parts;
  auto colorOf = [&](const std::string &place) {
    std::string part = place.substr(0, place.find('.'));
    if (part.empty())
      part = "other";
    const auto [found, isNew] = colors.try_emplace(part, static_cast<int>(parts.size()) % seriesColors);
    if (isNew)
      parts.push_back(part);
    return found->second;
  };

  std::string boxes;
  for (const MappedBuffer &buffer : map.buffers) {
    const double x = placeX(static_cast<double>(buffer.first)), end = placeX(static_cast<double>(buffer.last + 1)),
                 high = placeY(static_cast<double>(buffer.offset + buffer.bytes)),
                 low = placeY(static_cast<double>(buffer.offset));
    if (low - high < 0.05)
      continue;
    boxes += format("<rect class=\"series%d edge\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                    "fill=\"currentColor\" fill-opacity=\"0.45\"><title>",
                    colorOf(buffer.place), x, high, end - x, low - high) +
             format("%lld bytes at %lld, launches %lld to %lld, first used by ", static_cast<long long>(buffer.bytes),
                    static_cast<long long>(buffer.offset), static_cast<long long>(buffer.first),
                    static_cast<long long>(buffer.last)) +
             escapeMarkup(buffer.kernel + (buffer.place.empty() ? "" : " of " + buffer.place)) + "</title></rect>\n";
  }

  const LegendLines legend(parts, width - left - right);
  const double whole = height + legend.height();
  std::string svg = format("<svg class=\"memory\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
                           "font-family=\"monospace\" font-size=\"11\">\n",
                           width, whole, width, whole);
  for (const double address : axisMarks(0, arena / 1e6))
    svg += format("<path class=\"rule\" d=\"M%.1f %.1fH%.1f\"/><text class=\"faint\" x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"end\">%.4g</text>\n",
                  left, placeY(address * 1e6), width - right, left - 6, placeY(address * 1e6) + 4, address);
  svg += format("<text class=\"faint\" x=\"%.1f\" y=\"12\">MB</text>\n", left - 22);
  for (const double launch : axisMarks(0, launches))
    svg += format("<text class=\"faint\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.6g</text>\n", placeX(launch),
                  height - bottom + 16, launch);
  svg += format("<text class=\"faint\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">launch</text>\n", width - right,
                height - 4) +
         boxes;
  for (size_t i = 0; i < map.programs.size(); ++i) {
    const double x = placeX(static_cast<double>(map.programs[i].second)),
                 end = i + 1 < map.programs.size() ? placeX(static_cast<double>(map.programs[i + 1].second))
                                                   : width - right;
    svg += format("<path class=\"faint\" stroke=\"currentColor\" stroke-dasharray=\"3 3\" d=\"M%.1f %.1fV%.1f\"/>\n", x,
                  top - 16, height - bottom);
    if (const auto columns = static_cast<int64_t>((end - x - 6) / 6.7); columns >= 3)
      svg += format("<text class=\"ink\" x=\"%.1f\" y=\"%.1f\">", x + 4, top - 8) +
             escapedEnd(map.programs[i].first, columns) + "</text>\n";
  }
  std::string line;
  for (size_t at = 0; at < map.live.size(); ++at) // a step of the line for each launch
    line += format("%s%.1f %.1fH%.1f", line.empty() ? "M" : "L", placeX(static_cast<double>(at)),
                   placeY(static_cast<double>(map.live[at])), placeX(static_cast<double>(at + 1)));
  if (!line.empty())
    svg += "<path class=\"live\" fill=\"none\" stroke-width=\"1.2\" d=\"" + line + "\"/>\n";
  return svg + legend.svg(left, height) + "</svg>\n";
}

} // namespace xfc
