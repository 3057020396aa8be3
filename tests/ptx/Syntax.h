// The syntax tree of PTX text: variables and functions, in whose statements registers and labels are resolved by scope.
#pragma once

#include "Interpreter.h"
#include <optional>

namespace xfc::ptx {

enum class Type : uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F16x2,
  BF16x2,
  TF32,
  F32,
  F64
};
std::optional<Type> typeNamed(const std::string &name); // "u32"
int bytesOf(Type);                                      // in memory and per lane of a register; Pred: 1 in memory
inline bool isFloat(Type t) { return t >= Type::F16; }
inline bool isSigned(Type t) { return t >= Type::S8 && t <= Type::S64; }

enum class Space : uint8_t { Generic, Global, Const, Shared, Param, Local };

[[noreturn]] void failAt(int line, const std::string &text);

struct Operand {
  enum class Kind : uint8_t {
    Register,
    Special,
    Integer,
    Float,
    Symbol,
    Address,
    Vector,
    Tuple,
    Sink
  } kind = Kind::Sink;
  bool negated = false;  // !p
  std::string name;      // as written, for messages; the name of a special register or a symbol
  uint32_t reg = 0;      // Register: offset in the function's registers
  Type type = Type::B32; // Register: as declared. Float: F32 or F64, as written
  int64_t integer = 0;   // Integer; Symbol and Address: offset. Float: the bits of the value in `type`
  int scope = 0;         // Symbol: the scope in which to look up a label of this name
  // Vector {a,b}, Tuple (a,b), p|q as a Tuple; Address [base+offset]: the base and what follows it, [map, {x,y}]
  std::vector<Operand> elements;
};

struct Statement {
  int line = 0;
  std::optional<Operand> guard;
  std::string opcode;                 // "ld"
  std::vector<std::string> modifiers; // "global", "v4", "f32"
  std::vector<Operand> operands;
};

struct Variable {
  std::string name;
  Space space = Space::Global;
  size_t bytes = 0, align = 1;
  bool external = false;     // .extern .shared: the launch gives its size
  std::vector<uint8_t> data; // initial bytes
  struct Pointer {
    size_t at;
    std::string symbol;
    int64_t offset;
    bool generic;
  };
  std::vector<Pointer> pointers; // initial addresses, set once variables have memory
  uint64_t address = 0;          // Global, Const: device address. Shared, Local, Param: offset
};

struct FunctionText {
  std::string name;
  int line = 0;
  bool entry = false, defined = false;
  std::vector<Variable> parameters, results;
  std::vector<Variable> variables; // of all scopes; names in inner scopes are made unique
  uint32_t registerBytes = 0;      // per warp: 32 lanes each, a predicate 4 bytes in total
  std::vector<Statement> statements;
  std::map<std::pair<int, std::string>, uint32_t> labels; // statement index, by scope and name
  std::vector<int> parentScope;
  Dimensions required{0, 0, 0}, maximum{0, 0, 0}, cluster{0, 0, 0};
};

struct ModuleText {
  int version = 0;    // 71 for 7.1
  std::string target; // "sm_80"
  std::vector<Variable> variables;
  std::vector<FunctionText> functions;
};

ModuleText parse(const std::string &text);

} // namespace xfc::ptx
