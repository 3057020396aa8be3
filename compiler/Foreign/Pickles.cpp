// Finds pickles.
#include "Pickles.h"
#include "support/Error.h"
#include "support/Files.h"
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace xfc {
namespace {

// PyTorch writes a zip archive whose first member is NAME/data.pkl; before version 1.6 it wrote bare pickles, which
// begin with the opcode PROTO and the version of the protocol.
bool isPickle(const fs::path &file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    return false;
  std::string head(512, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(stream.gcount()));
  if (head.starts_with("PK\x03\x04"))
    return head.find("data.pkl") != std::string::npos;
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

} // namespace

std::string findPickle(const std::string &path) {
  if (isPickle(path))
    return path;
  for (const std::string &name : namesIn(path))
    if (isPickle(path + "/" + name))
      return path + "/" + name;
  return "";
}

std::string adviceAboutPickles() {
  return "a pickle, which runs whatever code it contains when it is read; if you trust it, convert it: a model of "
         "transformers with from_pretrained and save_pretrained, which writes safetensors, and one of fairseq or "
         "OpenNMT with CTranslate2's ct2-fairseq-converter or ct2-opennmt-py-converter, whose folders can be imported";
}

} // namespace xfc
