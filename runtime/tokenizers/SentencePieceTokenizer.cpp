// A tokenizer that uses a SentencePiece model with the model's own ids.
#include "tokenizers/Kinds.h"
#include "tokenizers/SentencePieceModel.h"
#include <sentencepiece_processor.h>

namespace xfc {
namespace {

class SentencePieceTokenizer : public Tokenizer {
public:
  explicit SentencePieceTokenizer(std::string_view contents) : model(loadSentencePieceModel(contents)) {}
  int64_t size() const override { return model->GetPieceSize(); }
  bool canSample() const override { return xfc::canSample(*model); }
  std::vector<std::string> unknowns(std::string_view line) const override {
    std::vector<std::string> pieces = segmentText<std::string>(*model, line, nullptr);
    std::erase_if(pieces, [&](const std::string &piece) { return idOf(piece) != model->unk_id(); });
    return pieces;
  }
  std::string piece(int32_t id) const override { return model->IdToPiece(id); }
  int32_t idOf(std::string_view piece) const override { return model->PieceToId({piece.data(), piece.size()}); }
  SpecialTokens special() const override {
    return {model->pad_id(), model->unk_id(), model->bos_id(), model->eos_id()};
  }
  bool fillsTables() const override { return true; }

protected:
  std::vector<int32_t> segment(std::string_view line, const SegmentationSampling *sampling) const override {
    return segmentText<int>(*model, line, sampling);
  }
  std::string join(std::span<const int32_t> ids, std::span<const std::string> unknowns) const override {
    std::string text;
    if (unknowns.empty()) {
      model->Decode(std::vector<int>(ids.begin(), ids.end()), &text).IgnoreError();
      return text;
    }
    std::vector<std::string> pieces;
    bool begun = false;
    for (const int32_t id : ids) {
      const bool given = id == model->unk_id() && !unknowns.empty();
      // The library leaves the blank before a line out, but not that of a piece that it does not know.
      pieces.push_back(!given ? piece(id) : begun ? unknowns.front() : withoutBlank(unknowns.front()));
      begun |= given || !model->IsControl(id);
      unknowns = unknowns.subspan(given);
    }
    model->Decode(pieces, &text).IgnoreError();
    return withBlanks(text); // the library leaves those of pieces that it does not know
  }

private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model;
};

} // namespace

std::unique_ptr<Tokenizer> sentencePieceTokenizer(std::string_view contents) {
  return std::make_unique<SentencePieceTokenizer>(contents);
}

} // namespace xfc
