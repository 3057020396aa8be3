// Parses PTX text into its syntax tree.
#include "Syntax.h"
#include <cstring>
#include <set>
#include <utility>

namespace xfc::ptx {

void failAt(int line, const std::string &text) { throw Error("line " + std::to_string(line) + ": " + text); }

static const std::map<std::string, std::pair<Type, int>> &types() {
  static const std::map<std::string, std::pair<Type, int>> table = {
      {"pred", {Type::Pred, 1}},   {"b8", {Type::B8, 1}},         {"b16", {Type::B16, 2}},   {"b32", {Type::B32, 4}},
      {"b64", {Type::B64, 8}},     {"b128", {Type::B128, 16}},    {"u8", {Type::U8, 1}},     {"u16", {Type::U16, 2}},
      {"u32", {Type::U32, 4}},     {"u64", {Type::U64, 8}},       {"s8", {Type::S8, 1}},     {"s16", {Type::S16, 2}},
      {"s32", {Type::S32, 4}},     {"s64", {Type::S64, 8}},       {"f16", {Type::F16, 2}},   {"bf16", {Type::BF16, 2}},
      {"f16x2", {Type::F16x2, 4}}, {"bf16x2", {Type::BF16x2, 4}}, {"tf32", {Type::TF32, 4}}, {"f32", {Type::F32, 4}},
      {"f64", {Type::F64, 8}}};
  return table;
}

std::optional<Type> typeNamed(const std::string &name) {
  auto found = types().find(name);
  return found == types().end() ? std::nullopt : std::optional(found->second.first);
}

int bytesOf(Type type) {
  static const auto sizes = [] {
    std::array<int, 32> result{};
    for (auto &[name, entry] : types())
      result[size_t(entry.first)] = entry.second;
    return result;
  }();
  return sizes[size_t(type)];
}

namespace {

struct Token {
  enum Kind : uint8_t { Word, Integer, Float32, Float64, String, Mark, End } kind = End;
  std::string text;
  uint64_t bits = 0;
  int line = 0;
};

std::vector<Token> tokenize(const std::string &text) {
  std::vector<Token> tokens;
  int line = 1;
  const char *p = text.c_str(), *end = p + text.size();
  auto letter = [](char c) {
    return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
  };
  while (p < end && *p) {
    if (*p == '\n') {
      ++line, ++p;
    } else if (isspace(static_cast<unsigned char>(*p))) {
      ++p;
    } else if (p[0] == '/' && p[1] == '/') {
      while (p < end && *p != '\n')
        ++p;
    } else if (p[0] == '/' && p[1] == '*') {
      for (p += 2; p < end && !(p[0] == '*' && p[1] == '/'); ++p)
        line += *p == '\n';
      p = std::min(p + 2, end);
    } else if (*p == '"') {
      const char *start = ++p;
      while (p < end && *p != '"')
        ++p;
      tokens.push_back({Token::String, std::string(start, p), 0, line});
      p = std::min(p + 1, end);
    } else if (isdigit(static_cast<unsigned char>(*p))) {
      const char *start = p;
      Token token{Token::Integer, "", 0, line};
      char kind = p[0] == '0' ? char(tolower(p[1])) : 0;
      if (kind == 'f' || kind == 'd') {
        int digits = kind == 'f' ? 8 : 16;
        p += 2;
        for (int i = 0; i < digits; ++i, ++p) {
          if (!isxdigit(static_cast<unsigned char>(*p)))
            failAt(line,
                   "a number 0" + std::string(1, kind) + " needs " + std::to_string(digits) + " hexadecimal digits");
          token.bits =
              token.bits * 16 + uint64_t(isdigit(static_cast<unsigned char>(*p)) ? *p - '0' : tolower(*p) - 'a' + 10);
        }
        token.kind = kind == 'f' ? Token::Float32 : Token::Float64;
      } else {
        char *stop, *floatStop;
        bool binary = kind == 'b';
        token.bits = strtoull(binary ? p + 2 : p, &stop, binary ? 2 : 0);
        double value = kind == 'x' ? 0 : strtod(p, &floatStop);
        if (kind != 'x' && !binary && floatStop > stop) {
          token.kind = Token::Float64;
          memcpy(&token.bits, &value, 8);
          stop = floatStop;
        } else if (*stop == 'U') {
          ++stop;
        }
        p = stop;
      }
      if (letter(*p))
        failAt(line, "not a number: " + std::string(start, p + 1));
      token.text = std::string(start, p);
      tokens.push_back(token);
    } else if (letter(*p)) {
      const char *start = p;
      while (letter(*p) || (p[0] == ':' && p[1] == ':')) // shared::cluster is one word
        p += *p == ':' ? 2 : 1;
      tokens.push_back({Token::Word, std::string(start, p), 0, line});
    } else {
      tokens.push_back({Token::Mark, std::string(1, *p), 0, line});
      ++p;
    }
  }
  tokens.push_back({Token::End, "end of text", 0, line});
  return tokens;
}

struct Register {
  uint32_t offset;
  Type type;
};

// The registers and variables declared within a pair of braces.
struct Scope {
  int id;
  std::map<std::string, Register> registers;
  std::map<std::string, std::pair<Type, uint32_t>> ranges; // %r<10>: type and offset, by name without number
  std::map<std::string, uint32_t> counts;
  std::map<std::string, std::string> variables; // name here -> unique name in the function
};

class Parser {
public:
  explicit Parser(const std::string &text) : tokens(tokenize(text)) {}

  ModuleText run() {
    while (peek().kind != Token::End)
      top();
    return std::move(module);
  }

private:
  std::vector<Token> tokens;
  size_t position = 0;
  ModuleText module;
  FunctionText *function = nullptr;
  std::vector<Scope> scopes;

  const Token &peek(size_t ahead = 0) const { return tokens[std::min(position + ahead, tokens.size() - 1)]; }
  const Token &next() { return tokens[std::min(position++, tokens.size() - 1)]; }
  bool is(const char *text) const { return peek().text == text && peek().kind != Token::String; }
  bool accept(const char *text) {
    if (!is(text))
      return false;
    next();
    return true;
  }
  [[noreturn]] void fail(const std::string &text) const { failAt(peek().line, text); }
  void expect(const char *text) {
    if (!accept(text))
      fail("expected '" + std::string(text) + "', found '" + peek().text + "'");
  }
  std::string word() {
    if (peek().kind != Token::Word)
      fail("expected a name, found '" + peek().text + "'");
    return next().text;
  }
  int64_t integer() {
    bool negative = accept("-");
    if (peek().kind != Token::Integer)
      fail("expected an integer, found '" + peek().text + "'");
    int64_t value = int64_t(next().bits);
    return negative ? -value : value;
  }
  void skipLine() {
    for (int line = peek().line; peek().line == line && peek().kind != Token::End;)
      next();
  }
  void skipBraces() {
    expect("{");
    for (int depth = 1; depth; next()) {
      if (peek().kind == Token::End)
        fail("missing '}'");
      depth += is("{") ? 1 : is("}") ? -1 : 0;
    }
  }

  void top() {
    if (accept(".version")) {
      // 7.1 is tokenized as a floating-point number
      double value;
      const Token &token = next();
      memcpy(&value, &token.bits, 8);
      module.version = token.kind == Token::Float64 ? int(value * 10 + 0.5) : int(token.bits * 10);
    } else if (accept(".target")) {
      module.target = word();
      while (accept(","))
        word();
    } else if (accept(".address_size")) {
      if (integer() != 64)
        fail("only 64-bit addresses are supported");
    } else if (is(".file") || is(".loc") || is(".pragma")) {
      skipLine();
    } else if (accept(".section")) {
      word();
      skipBraces();
    } else {
      bool external = false;
      while (is(".visible") || is(".extern") || is(".weak") || is(".common"))
        external |= next().text == ".extern";
      if (is(".entry") || is(".func"))
        functionText(next().text == ".entry");
      else if (is(".global") || is(".const") || is(".shared"))
        declare(module.variables, external);
      else
        fail("unknown directive '" + peek().text + "'");
    }
  }

  static Space spaceOf(const std::string &name) {
    return name == ".global"   ? Space::Global
           : name == ".const"  ? Space::Const
           : name == ".shared" ? Space::Shared
           : name == ".local"  ? Space::Local
                               : Space::Param;
  }

  // .space [.align n] [.ptr ...] .type name [dims] [= initializer], as a parameter and as a variable.
  Variable variable(bool external) {
    Variable v;
    v.space = spaceOf(word());
    v.external = external && v.space == Space::Shared;
    size_t vector = 1;
    std::optional<Type> type;
    size_t align = 0;
    while (peek().kind == Token::Word && peek().text[0] == '.') {
      std::string name = next().text;
      if (name == ".align")
        align = size_t(integer());
      else if (name == ".v2" || name == ".v4")
        vector = size_t(name[2] - '0');
      else if (name == ".ptr" || name == ".global" || name == ".const" || name == ".shared" || name == ".local" ||
               name == ".attribute")
        continue;
      else if (!(type = typeNamed(name.substr(1))))
        fail("unknown type '" + name + "'");
      if (name == ".attribute")
        fail("unknown attribute");
    }
    if (!type)
      fail("a variable without a type");
    // A parameter's `.align` after `.ptr` is the alignment of its target.
    size_t element = size_t(bytesOf(*type));
    v.name = word();
    v.bytes = element * vector;
    bool array = false;
    while (accept("[")) {
      array = true;
      if (accept("]")) {
        v.bytes = 0;
        break;
      }
      v.bytes *= size_t(integer());
      expect("]");
    }
    v.align = v.space == Space::Param && !array ? element : std::max(align, element * vector);
    if (accept("=")) {
      initialise(v, element, *type);
      v.bytes = std::max(v.bytes, v.data.size());
      v.data.resize(v.bytes);
    }
    return v;
  }

  void initialise(Variable &v, size_t element, Type type) {
    if (accept("{")) {
      if (!accept("}")) {
        do
          initialise(v, element, type);
        while (accept(","));
        expect("}");
      }
      return;
    }
    uint64_t bits = 0;
    if (peek().kind == Token::Word) {
      Variable::Pointer pointer{v.data.size(), word(), 0, false};
      if (pointer.symbol == "generic") {
        expect("(");
        pointer.symbol = word();
        pointer.generic = true;
        expect(")");
      }
      if (accept("+"))
        pointer.offset = integer();
      v.pointers.push_back(pointer);
    } else {
      bool negative = accept("-");
      const Token &token = next();
      if (token.kind == Token::Float64 || token.kind == Token::Float32) {
        bits = floatBits(token, type == Type::F32 ? Type::F32 : Type::F64);
        bits ^= negative ? uint64_t(1) << (8 * element - 1) : 0;
      } else if (token.kind == Token::Integer) {
        bits = negative ? 0 - token.bits : token.bits;
      } else {
        fail("expected a number, found '" + token.text + "'");
      }
    }
    const auto *bytes = reinterpret_cast<const uint8_t *>(&bits);
    v.data.insert(v.data.end(), bytes, bytes + element);
  }

  static uint64_t floatBits(const Token &token, Type type) {
    if (token.kind == Token::Float32 && type == Type::F64) {
      float value;
      memcpy(&value, &token.bits, 4);
      double wide = value;
      uint64_t bits;
      memcpy(&bits, &wide, 8);
      return bits;
    }
    if (token.kind == Token::Float64 && type == Type::F32) {
      double value;
      memcpy(&value, &token.bits, 8);
      float narrow = float(value);
      uint32_t bits;
      memcpy(&bits, &narrow, 4);
      return bits;
    }
    return token.bits;
  }

  void declare(std::vector<Variable> &to, bool external) {
    Variable v = variable(external);
    to.push_back(v);
    while (accept(",")) { // .shared .b64 a, b
      v.name = word();
      to.push_back(v);
    }
    expect(";");
  }

  static void place(std::vector<Variable> &parameters) {
    uint64_t offset = 0;
    for (Variable &v : parameters) {
      offset = (offset + v.align - 1) / v.align * v.align;
      v.address = offset;
      offset += v.bytes;
    }
  }

  std::vector<Variable> parameterList() {
    std::vector<Variable> list;
    if (accept("(") && !accept(")")) {
      do {
        if (is(".reg"))
          fail("register parameters are not supported");
        list.push_back(variable(false));
      } while (accept(","));
      expect(")");
    }
    place(list);
    return list;
  }

  void functionText(bool entry) {
    FunctionText f;
    f.entry = entry;
    f.line = peek().line;
    if (!entry)
      f.results = parameterList();
    f.name = word();
    f.parameters = parameterList();
    while (!is("{") && !is(";")) {
      std::string name = word();
      auto dimensions = [&] {
        Dimensions d;
        d.x = uint32_t(integer());
        if (accept(","))
          d.y = uint32_t(integer());
        if (accept(","))
          d.z = uint32_t(integer());
        return d;
      };
      if (name == ".reqntid")
        f.required = dimensions();
      else if (name == ".maxntid")
        f.maximum = dimensions();
      else if (name == ".reqnctapercluster")
        f.cluster = dimensions();
      else if (name == ".minnctapersm" || name == ".maxnreg" || name == ".maxclusterrank")
        integer();
      else if (name == ".pragma")
        next(), accept(";");
      else if (name != ".noreturn" && name != ".explicitcluster" && name != ".blocksareclusters")
        fail("unknown directive '" + name + "' of a function");
    }
    if (accept(";")) { // a declaration
      if (f.name != "vprintf")
        for (const FunctionText &other : module.functions)
          if (other.name == f.name)
            return;
      module.functions.push_back(std::move(f));
      return;
    }
    f.defined = true;
    std::erase_if(module.functions, [&](const FunctionText &other) { return other.name == f.name && !other.defined; });
    module.functions.push_back(std::move(f));
    function = &module.functions.back();
    body(-1);
    function = nullptr;
  }

  void body(int parent) {
    expect("{");
    int id = int(function->parentScope.size());
    function->parentScope.push_back(parent);
    scopes.push_back({id, {}, {}, {}, {}});
    while (!accept("}")) {
      if (peek().kind == Token::End)
        fail("missing '}'");
      if (is("{"))
        body(id);
      else if (is(".loc") || is(".file") || is(".pragma"))
        skipLine();
      else if (accept(".reg"))
        registers();
      else if (is(".local") || is(".shared") || is(".param"))
        localVariables();
      else if (accept(".branchtargets") || accept(".callprototype"))
        fail("indirect branches and calls are not supported");
      else if (peek().text[0] == '.')
        fail("unknown directive '" + peek().text + "'");
      else if (peek().kind == Token::Word && peek(1).text == ":") {
        std::string name = word();
        next();
        if (is(".branchtargets"))
          branchTargets(name);
        else if (!function->labels.emplace(std::pair(id, name), uint32_t(function->statements.size())).second)
          fail("label " + name + " stands twice");
      } else if (!accept(";")) {
        statement();
      }
    }
    scopes.pop_back();
  }

  // name: .branchtargets a, b; stored as a statement that `brx.idx` finds by its label.
  void branchTargets(const std::string &name) {
    Statement s;
    s.line = peek().line;
    next();
    s.opcode = ".branchtargets";
    do
      s.operands.push_back(operand());
    while (accept(","));
    expect(";");
    function->labels.emplace(std::pair(scopes.back().id, name), uint32_t(function->statements.size()));
    function->statements.push_back(std::move(s));
  }

  void registers() {
    std::string name = word();
    std::optional<Type> type = typeNamed(name.substr(1));
    if (name[0] != '.' || !type)
      fail("unknown register type '" + name + "'");
    uint32_t size = *type == Type::Pred ? 4 : 32 * std::max(2u, uint32_t(bytesOf(*type)));
    auto reserve = [&](uint32_t count) {
      uint32_t align = *type == Type::Pred ? 4 : 64;
      uint32_t offset = (function->registerBytes + align - 1) / align * align;
      function->registerBytes = offset + count * size;
      return offset;
    };
    do {
      std::string reg = word();
      if (accept("<")) {
        auto count = uint32_t(integer());
        expect(">");
        scopes.back().ranges[reg] = {*type, reserve(count)};
        scopes.back().counts[reg] = count;
      } else {
        scopes.back().registers[reg] = {reserve(1), *type};
      }
    } while (accept(","));
    expect(";");
  }

  void localVariables() {
    std::vector<Variable> list;
    declare(list, false);
    for (Variable &v : list) {
      std::string unique = v.name + "#" + std::to_string(function->variables.size());
      scopes.back().variables[v.name] = unique;
      v.name = unique;
      function->variables.push_back(v);
    }
  }

  std::optional<Register> findRegister(const std::string &name) const {
    size_t digits = name.size();
    while (digits > 0 && isdigit(static_cast<unsigned char>(name[digits - 1])))
      --digits;
    for (size_t i = scopes.size(); i-- > 0;) {
      const Scope &scope = scopes[i];
      if (auto found = scope.registers.find(name); found != scope.registers.end())
        return found->second;
      if (digits == name.size())
        continue;
      if (auto found = scope.ranges.find(name.substr(0, digits)); found != scope.ranges.end()) {
        auto number = uint32_t(std::stoul(name.substr(digits)));
        if (number >= scope.counts.at(found->first))
          continue;
        auto [type, offset] = found->second;
        return Register{offset + number * (type == Type::Pred ? 4 : 32 * std::max(2u, uint32_t(bytesOf(type)))), type};
      }
    }
    return std::nullopt;
  }

  Operand operand() {
    Operand o;
    o.negated = accept("!");
    if (accept("{") || is("(")) {
      bool vector = tokens[position - 1].text == "{";
      if (!vector)
        next();
      o.kind = vector ? Operand::Kind::Vector : Operand::Kind::Tuple;
      const char *close = vector ? "}" : ")";
      if (!accept(close)) {
        do
          o.elements.push_back(operand());
        while (accept(","));
        expect(close);
      }
      return o;
    }
    if (accept("[")) {
      o.kind = Operand::Kind::Address;
      do
        o.elements.push_back(operand());
      while (accept(","));
      expect("]");
      if (o.elements[0].kind == Operand::Kind::Symbol)
        o.integer = std::exchange(o.elements[0].integer, 0);
      if (o.elements[0].kind == Operand::Kind::Register)
        o.integer = std::exchange(o.elements[0].integer, 0);
      return o;
    }
    bool negative = accept("-");
    const Token &token = peek();
    if (token.kind == Token::Integer) {
      next();
      o.kind = Operand::Kind::Integer;
      o.name = token.text;
      o.integer = int64_t(negative ? 0 - token.bits : token.bits);
      return o;
    }
    if (token.kind == Token::Float32 || token.kind == Token::Float64) {
      next();
      o.kind = Operand::Kind::Float;
      o.name = token.text;
      o.type = token.kind == Token::Float32 ? Type::F32 : Type::F64;
      o.integer = int64_t(token.bits ^ (negative ? uint64_t(1) << (o.type == Type::F32 ? 31 : 63) : 0));
      return o;
    }
    if (negative)
      fail("expected a number after '-'");
    o.name = word();
    if (o.name == "_") {
      // the sink symbol _
    } else if (auto found = findRegister(o.name)) {
      o.kind = Operand::Kind::Register;
      o.reg = found->offset;
      o.type = found->type;
    } else if (o.name[0] == '%') {
      o.kind = Operand::Kind::Special;
    } else {
      o.kind = Operand::Kind::Symbol;
      o.scope = scopes.back().id;
      for (size_t i = scopes.size(); i-- > 0;)
        if (auto variable = scopes[i].variables.find(o.name); variable != scopes[i].variables.end()) {
          o.name = variable->second;
          break;
        }
    }
    if (is("+") || is("-")) { // base + offset
      bool minus = next().text == "-";
      int64_t offset = integer();
      o.integer = minus ? -offset : offset;
    }
    if (accept("|")) {
      Operand pair;
      pair.kind = Operand::Kind::Tuple;
      pair.elements = {o, operand()};
      return pair;
    }
    return o;
  }

  void statement() {
    Statement s;
    s.line = peek().line;
    if (accept("@")) {
      s.guard = operand();
      if (s.guard->kind != Operand::Kind::Register || s.guard->type != Type::Pred)
        fail("a guard that is no predicate register: '" + s.guard->name + "'");
    }
    s.line = peek().line;
    std::string text = word();
    for (size_t start = 0; start <= text.size();) {
      size_t dot = std::min(text.find('.', start), text.size());
      if (start == 0)
        s.opcode = text.substr(0, dot);
      else
        s.modifiers.push_back(text.substr(start, dot - start));
      start = dot + 1;
    }
    while (!accept(";")) {
      s.operands.push_back(operand());
      if (!is(";"))
        expect(",");
    }
    function->statements.push_back(std::move(s));
  }
};

} // namespace

ModuleText parse(const std::string &text) { return Parser(text).run(); }

} // namespace xfc::ptx
