// The tools with which each family of instructions decodes itself: modifiers are consumed one by one (a remaining one
// is an error), and operands become places in the register file.
#pragma once

#include "Machine.h"
#include <set>

namespace xfc::ptx {

struct FunctionDecoder; // registers, constants and symbols of the function

class Decoder {
public:
  Decoder(FunctionDecoder &function, const Statement &statement);

  const Statement &s;
  Instruction i;

  [[noreturn]] void fail(const std::string &text) const { failAt(s.line, s.opcode + ": " + text); }

  // ---- modifiers
  bool take(const char *modifier);
  void ignore(std::initializer_list<const char *> modifiers);
  // The index of the modifier that is present; `otherwise` if none is (an error if that is negative).
  int choose(std::initializer_list<const char *> modifiers, int otherwise = -1);
  Type type(); // the first remaining type
  std::optional<Type> maybeType();
  void done() const; // checks that all modifiers and operands were used

  // ---- operands
  size_t operands() const { return s.operands.size(); }
  void expect(size_t least, size_t most) const;
  uint32_t source(const Operand &o, Type type, bool wider = false);
  uint32_t destination(const Operand &o, Type type, bool wider = false);
  uint32_t source(size_t n, Type type, bool wider = false) { return source(s.operands.at(n), type, wider); }
  uint32_t destination(size_t n, Type type, bool wider = false) { return destination(s.operands.at(n), type, wider); }
  uint32_t constant(uint64_t bits, int bytes);
  int64_t immediate(size_t n) const;
  std::vector<Operand> vector(const Operand &o, size_t count) const; // {a, b}, or a single operand
  // Decodes a destination and sources of one type each, in order.
  void all(Type to, std::initializer_list<Type> from);
  static int width(const Operand &o) { return bytesOf(o.type); } // of a register, in bytes

  Place address(const Operand &o, Space space); // [base+offset]

  void set(Handler run, Flow flow = Flow::Next) {
    i.run = run;
    i.flow = flow;
  }
  FunctionDecoder &function;

private:
  std::vector<std::string> left;
};

using Opcodes = std::map<std::string, void (*)(Decoder &)>;
void addArithmetic(Opcodes &);          // integers, bits, comparison and selection
void addConversions(Opcodes &);         // cvt, mov, cvta
void addMemory(Opcodes &);              // ld, st, atom, red, cp.async, fences
void addWarp(Opcodes &);                // shuffles, votes, barriers
void addMatrix(Opcodes &);              // ldmatrix, stmatrix, mma
void addAsync(Opcodes &);               // mbarrier; cp.async.bulk is decoded by decodeBulkCopy
void addWarpgroup(Opcodes &);           // wgmma
void decodeBulkCopy(Decoder &);         // a cp whose .async and .bulk are consumed
void decodeBarrierCopy(Decoder &);      // cp.async.mbarrier.arrive
void watchProductRegisters(Function &); // of wgmma, after decoding

// ---- handlers made from functions of one lane

template <class Pointer> struct OfLane;
template <class D, class... S> struct OfLane<D (*)(S...)> {
  template <auto F, size_t... K> static void apply(Warp &w, const Instruction &i, std::index_sequence<K...>) {
    alignas(64) D result[32];
    const uint32_t *op = i.op.data();
    auto lanes = [&](const S *__restrict... from) {
      for (int l = 0; l < 32; ++l)
        result[l] = F(from[l]...);
    };
    lanes(w.at<S>(op[K + 1])...);
    w.put(op[0], result);
  }
  template <auto F> static void run(Warp &w, const Instruction &i) { apply<F>(w, i, std::index_sequence_for<S...>()); }
};
// op[0] = F(op[1], op[2], ...) for every lane. The result is discarded for inactive lanes.
template <auto F> constexpr Handler onLanes = &OfLane<decltype(+F)>::template run<F>;

// Calls f.operator()<T>() for the C++ type of an integer type; bit types are unsigned.
template <class F> Handler ofInteger(Decoder &d, Type type, F f) {
  switch (type) {
  case Type::U16:
  case Type::B16:
    return f.template operator()<uint16_t>();
  case Type::U32:
  case Type::B32:
    return f.template operator()<uint32_t>();
  case Type::U64:
  case Type::B64:
    return f.template operator()<uint64_t>();
  case Type::S16:
    return f.template operator()<int16_t>();
  case Type::S32:
    return f.template operator()<int32_t>();
  case Type::S64:
    return f.template operator()<int64_t>();
  default:
    d.fail("not a type of this instruction");
  }
}

} // namespace xfc::ptx
