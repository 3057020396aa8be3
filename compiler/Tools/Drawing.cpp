// Draws a description.
#include "Drawing.h"
#include "Import/StepKinds.h"
#include <algorithm>
#include <cstdio>
#include <functional>

namespace xfc {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void outline(std::string &text, const std::vector<StepDescription> &steps, int depth) {
  for (const StepDescription &step : steps) {
    text += std::string(size_t(2) * depth, ' ') + step.kind->labelOf(step);
    if (!step.name.empty())
      text += "  (" + step.name + ")";
    if (auto *attention = std::get_if<step::Attention>(&step.options); attention && attention->dropout > 0)
      text += ", dropout " + number(attention->dropout) + " of the weights";
    text += "\n";
    outline(text, stepsInside(step), depth + 1);
  }
}

void outlineStack(std::string &text, const char *name, const StackDescription &stack) {
  text += std::string(name) + "\n";
  outline(text, stack.input, 1);
  text += "  " + std::to_string(stack.layers) + " x layer\n";
  outline(text, stack.layer, 2);
  outline(text, stack.output, 1);
}

constexpr int boxWidth = 210, boxHeight = 26, gap = 12, margin = 40, column = 340;

// The color of a step's box.
struct Fill {
  const char *operator()(const step::Attention &) const { return "#ffe1c2"; }
  const char *operator()(const step::Linear &) const { return "#c9e4f8"; }
  const char *operator()(const step::Gated &) const { return "#c9e4f8"; }
  const char *operator()(const step::LayerNorm &) const { return "#f3f0b9"; }
  const char *operator()(const step::RmsNorm &) const { return "#f3f0b9"; }
  const char *operator()(const step::Embedding &) const { return "#fbd5d9"; }
  const char *operator()(const step::SinusoidalPositions &) const { return "#fbd5d9"; }
  const char *operator()(const step::LearnedPositions &) const { return "#fbd5d9"; }
  template <typename Other> const char *operator()(const Other &) const { return "#e9e9e9"; }
};

struct Canvas {
  std::string shapes;
  int x = 0, y = 0;         // y grows upwards; shapes use -y
  std::vector<int> readers; // the y of each attention that reads the encoder

  void box(const StepDescription &step) {
    char text[512];
    std::snprintf(text, sizeof text,
                  "<rect x='%d' y='%d' width='%d' height='%d' rx='5' fill='%s' stroke='#444'/>"
                  "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n",
                  x, -(y + boxHeight), boxWidth, boxHeight, std::visit(Fill(), step.options), x + boxWidth / 2,
                  -(y + 8), step.kind->labelOf(step).c_str());
    shapes += text;
    if (auto *attention = std::get_if<step::Attention>(&step.options); attention && attention->encoderMemory)
      readers.push_back(y + boxHeight / 2);
    y += boxHeight;
    arrow();
  }
  void arrow() {
    char text[160];
    std::snprintf(text, sizeof text, "<path d='M%d %d v-%d' class='wire'/>\n", x + boxWidth / 2, -y, gap);
    shapes += text;
    y += gap;
  }
  void add(const std::vector<StepDescription> &steps) {
    for (const StepDescription &step : steps) {
      auto *residual = std::get_if<step::Residual>(&step.options);
      if (!residual) {
        box(step);
        continue;
      }
      int from = y - gap / 2;
      add(residual->body);
      char text[320];
      std::snprintf(
          text, sizeof text,
          "<path d='M%d %d H%d V%d H%d' class='wire'/><circle cx='%d' cy='%d' r='7' fill='#fff' stroke='#444'/>"
          "<text x='%d' y='%d' text-anchor='middle'>+</text>\n",
          x + boxWidth / 2, -from, x - 14, -(y + 2), x + boxWidth / 2 - 7, x + boxWidth / 2, -(y + 2), x + boxWidth / 2,
          -(y - 2));
      shapes += text;
      y += 9;
      arrow();
    }
  }
  void stack(const char *name, const StackDescription &stack) {
    char text[400];
    std::snprintf(text, sizeof text, "<text x='%d' y='%d' text-anchor='middle' font-weight='bold'>%s</text>\n",
                  x + boxWidth / 2, -(y - 22), name);
    shapes += text;
    add(stack.input);
    int from = y;
    y += 8;
    add(stack.layer);
    std::snprintf(text, sizeof text,
                  "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#888' stroke-dasharray='5 4'/>"
                  "<text x='%d' y='%d'>%lld x</text>\n",
                  x - 26, -(y - 4), boxWidth + 40, y - from - 6, x + boxWidth + 18, -((y + from) / 2),
                  static_cast<long long>(stack.layers));
    shapes += text;
    add(stack.output);
  }
};

} // namespace

std::string drawText(const Description &description) {
  std::string text;
  outlineStack(text, "encoder", description.encoder);
  if (description.decoder)
    outlineStack(text, "decoder", *description.decoder);
  if (!description.head.empty()) {
    text += "head\n";
    outline(text, description.head, 1);
  }
  return text;
}

std::string drawSvg(const Description &description) {
  Canvas canvas;
  canvas.x = margin;
  canvas.stack("encoder", description.encoder);
  int encoderTop = canvas.y, height = canvas.y;
  if (description.decoder) {
    canvas.x = margin + column;
    canvas.y = 0;
    canvas.stack("decoder", *description.decoder);
  }
  canvas.add(description.head);
  height = std::max(height, canvas.y);
  for (int reader : canvas.readers) {
    char text[200];
    std::snprintf(text, sizeof text, "<path d='M%d %d V%d H%d V%d H%d' class='wire'/>\n", margin + boxWidth / 2,
                  -encoderTop, -(encoderTop + 8), margin + column - 60, -reader, margin + column);
    canvas.shapes += text;
  }
  int width = margin + (description.decoder ? column : 0) + boxWidth + 70;
  char head[512];
  std::snprintf(
      head, sizeof head,
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 %d %d %d' width='%d' height='%d' font-family='sans-serif' "
      "font-size='13'>\n<style>.wire{fill:none;stroke:#444}</style>\n<rect x='0' y='%d' width='%d' height='%d' "
      "fill='#fff'/>\n",
      -(height + 30), width, height + 80, width, height + 80, -(height + 30), width, height + 80);
  return head + canvas.shapes + "</svg>\n";
}

} // namespace xfc
