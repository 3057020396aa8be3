// Decodes a module's syntax tree to code: assigns places to registers, constants and symbols, and resolves branch
// targets and reconvergence points.
#include "Decoder.h"
#include <algorithm>
#include <cstring>

namespace xfc::ptx {

static const Opcodes &opcodes() {
  static const Opcodes table = [] {
    Opcodes result;
    addArithmetic(result);
    addConversions(result);
    addMemory(result);
    addWarp(result);
    addMatrix(result);
    addAsync(result);
    addWarpgroup(result);
    return result;
  }();
  return table;
}

static uint64_t alignTo(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

static const std::set<std::string> &specialRegisters() {
  static const std::set<std::string> names = [] {
    std::set<std::string> result = {"%laneid",
                                    "%warpid",
                                    "%nwarpid",
                                    "%smid",
                                    "%nsmid",
                                    "%gridid",
                                    "%cluster_ctarank",
                                    "%cluster_nctarank",
                                    "%is_explicit_cluster",
                                    "%lanemask_eq",
                                    "%lanemask_lt",
                                    "%lanemask_le",
                                    "%lanemask_gt",
                                    "%lanemask_ge",
                                    "%dynamic_smem_size",
                                    "%total_smem_size"};
    for (const char *stem :
         {"%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"})
      for (const char *axis : {".x", ".y", ".z"})
        result.insert(std::string(stem) + axis);
    return result;
  }();
  return names;
}

// State shared by all functions of an entry.
struct EntryDecoder {
  Program &program;
  Function &out;
  std::map<std::pair<int, uint64_t>, uint32_t> constants; // by size and value
  std::map<std::string, uint32_t> specials;
  std::map<const FunctionText *, std::unique_ptr<FunctionDecoder>> functions;
  std::vector<const FunctionText *> calling; // to find recursion
  std::map<std::string, uint64_t> shared;    // of module variables by name, and of others as "function/variable"

  const FunctionText *find(const std::string &name) const {
    for (const FunctionText &f : program.text.functions)
      if (f.name == name)
        return &f;
    return nullptr;
  }
  uint32_t reserve(uint32_t bytes) {
    uint32_t &size = out.frame.registers;
    size = uint32_t(alignTo(size, 64));
    return std::exchange(size, size + bytes);
  }
  void layShared(const FunctionText &entry);
  void add(const FunctionText &text);
  void run(const FunctionText &entry);
};

struct FunctionDecoder {
  EntryDecoder &entry;
  const FunctionText &text;
  uint32_t registers = 0;                // where the function's registers begin
  std::map<std::string, uint64_t> local; // offsets in local memory of the function's variables, parameters and results
  uint32_t sink = None;
  uint32_t begin = 0, end = 0; // of its code
  struct Symbol {
    Space space;
    uint64_t address;
  };
  std::optional<Symbol> find(const std::string &name) const {
    if (auto found = local.find(name); found != local.end())
      return Symbol{Space::Local, found->second};
    if (auto found = entry.shared.find(text.name + "/" + name); found != entry.shared.end())
      return Symbol{Space::Shared, found->second};
    if (text.entry)
      for (const Variable &v : text.parameters)
        if (v.name == name)
          return Symbol{Space::Param, v.address};
    if (auto found = entry.shared.find(name); found != entry.shared.end())
      return Symbol{Space::Shared, found->second};
    for (const Variable &v : entry.program.text.variables)
      if (v.name == name)
        return Symbol{v.space, v.address};
    return std::nullopt;
  }
};

// ---- Decoder

Decoder::Decoder(FunctionDecoder &function, const Statement &statement)
    : s(statement), function(function), left(statement.modifiers) {
  i.line = s.line;
  if (s.guard) {
    i.guard = source(*s.guard, Type::Pred);
    i.negated = s.guard->negated;
  }
}

bool Decoder::take(const char *modifier) {
  auto found = std::find(left.begin(), left.end(), modifier);
  if (found == left.end())
    return false;
  left.erase(found);
  return true;
}

void Decoder::ignore(std::initializer_list<const char *> modifiers) {
  for (const char *m : modifiers)
    take(m);
}

int Decoder::choose(std::initializer_list<const char *> modifiers, int otherwise) {
  int index = 0;
  for (const char *m : modifiers) {
    if (take(m))
      return index;
    ++index;
  }
  if (otherwise < 0)
    fail("lacks one of the modifiers ." + [&] {
      std::string list;
      for (const char *m : modifiers)
        list += std::string(list.empty() ? "" : ", .") + m;
      return list;
    }());
  return otherwise;
}

std::optional<Type> Decoder::maybeType() {
  for (size_t k = 0; k < left.size(); ++k)
    if (auto t = typeNamed(left[k])) {
      left.erase(left.begin() + ptrdiff_t(k));
      return t;
    }
  return std::nullopt;
}

Type Decoder::type() {
  if (auto t = maybeType())
    return *t;
  fail("lacks a type");
}

void Decoder::done() const {
  if (!left.empty())
    fail("unknown modifier ." + left[0]);
}

void Decoder::expect(size_t least, size_t most) const {
  if (operands() < least || operands() > most)
    fail("has " + std::to_string(operands()) + " operands, expected " + std::to_string(least) +
         (most > least ? " to " + std::to_string(most) : ""));
}

uint32_t Decoder::constant(uint64_t bits, int bytes) {
  bits &= bytes == 8 ? ~uint64_t(0) : (uint64_t(1) << (8 * bytes)) - 1;
  EntryDecoder &e = function.entry;
  auto [it, isNew] = e.constants.try_emplace({bytes, bits}, 0);
  if (isNew) {
    it->second = e.reserve(uint32_t(32 * bytes));
    std::vector<uint8_t> data(size_t(32 * bytes));
    for (int l = 0; l < 32; ++l)
      memcpy(data.data() + l * bytes, &bits, size_t(bytes));
    e.out.frame.constants.emplace_back(it->second, std::move(data));
  }
  return it->second;
}

uint32_t Decoder::source(const Operand &o, Type type, bool wider) {
  int bytes = std::max(2, bytesOf(type));
  if (o.negated && type != Type::Pred)
    fail("'!' before what is no predicate");
  switch (o.kind) {
  case Operand::Kind::Register: {
    if ((o.type == Type::Pred) != (type == Type::Pred))
      fail("operand " + o.name + (type == Type::Pred ? " is no predicate" : " is a predicate"));
    int have = std::max(2, bytesOf(o.type));
    if (type != Type::Pred && (wider ? have < bytes : have != bytes))
      fail("register " + o.name + " has " + std::to_string(8 * have) + " bits, expected " + std::to_string(8 * bytes));
    if (o.integer)
      fail("an offset outside an address");
    return function.registers + o.reg;
  }
  case Operand::Kind::Special: {
    if (!specialRegisters().count(o.name))
      fail("unknown register " + o.name);
    if (bytes != 4 && !(o.name == "%gridid"))
      fail("special register " + o.name + " has 32 bits");
    EntryDecoder &e = function.entry;
    auto [it, isNew] = e.specials.try_emplace(o.name, 0);
    if (isNew) {
      it->second = e.reserve(256);
      e.out.frame.specials.emplace_back(it->second, o.name);
    }
    return it->second;
  }
  case Operand::Kind::Integer:
    if (type == Type::Pred) {
      EntryDecoder &e = function.entry;
      uint32_t mask = o.integer ? ~0u : 0, at = e.reserve(4);
      std::vector<uint8_t> data(4);
      memcpy(data.data(), &mask, 4);
      e.out.frame.constants.emplace_back(at, data);
      return at;
    }
    if (type == Type::F32 || type == Type::F64)
      fail("an integer where a floating-point number is expected: " + o.name);
    return constant(uint64_t(o.integer), bytes);
  case Operand::Kind::Float: {
    if (bytes < 4)
      fail("write a 16-bit number as its bits: " + o.name);
    uint64_t bits = uint64_t(o.integer);
    if (o.type == Type::F64 && bytes == 4) {
      double value;
      memcpy(&value, &bits, 8);
      float narrow = float(value);
      bits = 0;
      memcpy(&bits, &narrow, 4);
    } else if (o.type == Type::F32 && bytes == 8) {
      float value;
      memcpy(&value, &bits, 4);
      double wide = value;
      memcpy(&bits, &wide, 8);
    }
    return constant(bits, bytes);
  }
  case Operand::Kind::Symbol:
    if (auto symbol = function.find(o.name)) {
      if (bytes < 4)
        fail("an address in 16 bits");
      return constant(symbol->address + uint64_t(o.integer), bytes);
    }
    fail("unknown name " + o.name);
  default:
    fail("an operand is no register or constant");
  }
}

uint32_t Decoder::destination(const Operand &o, Type type, bool wider) {
  if (o.kind == Operand::Kind::Sink) {
    if (function.sink == None)
      function.sink = function.entry.reserve(512);
    return function.sink;
  }
  if (o.kind != Operand::Kind::Register || o.negated)
    fail("the result " + o.name + " is no register");
  return source(o, type, wider);
}

int64_t Decoder::immediate(size_t n) const {
  const Operand &o = s.operands.at(n);
  if (o.kind != Operand::Kind::Integer)
    fail("operand " + std::to_string(n + 1) + " has to be a number");
  return o.integer;
}

std::vector<Operand> Decoder::vector(const Operand &o, size_t count) const {
  std::vector<Operand> list = o.kind == Operand::Kind::Vector ? o.elements : std::vector{o};
  if (list.size() != count)
    fail("a vector of " + std::to_string(list.size()) + ", expected " + std::to_string(count));
  return list;
}

void Decoder::all(Type to, std::initializer_list<Type> from) {
  expect(from.size() + 1, from.size() + 1);
  i.op.push_back(destination(0, to));
  size_t n = 1;
  for (Type t : from)
    i.op.push_back(source(n++, t));
}

Place Decoder::address(const Operand &o, Space space) {
  Place place{space, false, None, o.integer};
  if (o.kind != Operand::Kind::Address)
    fail("expected an address in brackets, found '" + o.name + "'");
  const Operand &base = o.elements[0];
  switch (base.kind) {
  case Operand::Kind::Register:
    if (width(base) < 4 || base.type == Type::Pred)
      fail("an address in the register " + base.name);
    place.narrow = width(base) == 4;
    place.reg = source(base, base.type);
    break;
  case Operand::Kind::Integer:
    place.offset += base.integer;
    break;
  case Operand::Kind::Symbol: {
    auto symbol = function.find(base.name);
    if (!symbol)
      fail("unknown name " + base.name);
    bool fits = symbol->space == space || (space == Space::Param && symbol->space == Space::Local) ||
                (space == Space::Generic && (symbol->space == Space::Global || symbol->space == Space::Const));
    if (!fits)
      fail(base.name + " lies in another state space");
    place.space = symbol->space;
    place.offset += int64_t(symbol->address);
    break;
  }
  default:
    fail("not an address: '" + base.name + "'");
  }
  return place;
}

// ---- control flow

static void jump(Warp &, const Instruction &) {}

// Copies between the .param variables of a caller and a callee: `selector` bytes from one offset to another.
static void passParameter(Warp &w, const Instruction &i) {
  size_t size = w.block->cluster->launch.function.frame.local;
  for (size_t k = 0; k < i.op.size(); k += 3)
    forLanes(w.active, [&](int l) {
      memcpy(w.local + size * size_t(l) + i.op[k + 1], w.local + size * size_t(l) + i.op[k], i.op[k + 2]);
    });
}

static void trap(Warp &w, const Instruction &) { w.fault("trap"); }

// Finds each branch's reconvergence point, its immediate post-dominator: the first point that every path from the
// branch to the end of the function passes.
static void findMeetings(std::vector<Instruction> &code, uint32_t begin, uint32_t end) {
  uint32_t n = end - begin, exit = n;
  std::vector<std::vector<uint32_t>> successors(n), predecessors(n + 1);
  for (uint32_t k = 0; k < n; ++k) {
    const Instruction &i = code[begin + k];
    bool falls = true;
    if (i.flow == Flow::Branch || i.flow == Flow::Table) {
      if (i.flow == Flow::Branch)
        successors[k].push_back(i.target - begin);
      for (uint32_t t : i.table)
        successors[k].push_back(t - begin);
      falls = i.guard != None;
    } else if (i.flow == Flow::Exit || i.flow == Flow::Return || i.run == trap) {
      successors[k].push_back(exit);
      falls = i.guard != None;
    }
    if (falls)
      successors[k].push_back(k + 1 == n ? exit : k + 1);
    for (uint32_t to : successors[k])
      predecessors[to].push_back(k);
  }
  // Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph.
  std::vector<uint32_t> order, number(n + 1, None), dominator(n + 1, None);
  std::vector<std::pair<uint32_t, size_t>> stack = {{exit, 0}};
  std::vector<bool> seen(n + 1);
  seen[exit] = true;
  while (!stack.empty()) {
    auto &[node, child] = stack.back();
    if (child < predecessors[node].size()) {
      uint32_t to = predecessors[node][child++];
      if (!seen[to]) {
        seen[to] = true;
        stack.push_back({to, 0});
      }
    } else {
      number[node] = uint32_t(order.size());
      order.push_back(node);
      stack.pop_back();
    }
  }
  dominator[exit] = exit;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t k = order.size(); k-- > 0;) {
      uint32_t node = order[k];
      if (node == exit)
        continue;
      uint32_t best = None;
      for (uint32_t to : successors[node]) {
        if (dominator[to] == None)
          continue;
        if (best == None) {
          best = to;
          continue;
        }
        uint32_t a = best, b = to;
        while (a != b) {
          while (number[a] < number[b])
            a = dominator[a];
          while (number[b] < number[a])
            b = dominator[b];
        }
        best = a;
      }
      if (best != dominator[node]) {
        dominator[node] = best;
        changed = true;
      }
    }
  }
  for (uint32_t k = 0; k < n; ++k) {
    Instruction &i = code[begin + k];
    if (i.flow == Flow::Branch || i.flow == Flow::Table)
      i.reconverge = dominator[k] == None || dominator[k] == exit ? None : begin + dominator[k];
  }
}

void EntryDecoder::layShared(const FunctionText &f) {
  // Static variables that the entry or its callees name, followed by dynamic memory.
  std::vector<const FunctionText *> reached = {&f};
  std::vector<std::pair<std::string, const Variable *>> wanted;
  std::set<std::string> seen;
  std::function<void(const FunctionText &, const Operand &)> visit = [&](const FunctionText &g, const Operand &o) {
    for (const Operand &e : o.elements)
      visit(g, e);
    if (o.kind != Operand::Kind::Symbol)
      return;
    auto consider = [&](const std::vector<Variable> &variables, const std::string &prefix) {
      for (const Variable &v : variables)
        if (v.name == o.name && v.space == Space::Shared && seen.insert(prefix + v.name).second)
          wanted.emplace_back(prefix + v.name, &v);
    };
    consider(program.text.variables, "");
    consider(g.variables, g.name + "/");
    if (const FunctionText *callee = find(o.name);
        callee && std::find(reached.begin(), reached.end(), callee) == reached.end())
      reached.push_back(callee);
  };
  for (size_t k = 0; k < reached.size(); ++k)
    for (const Statement &s : reached[k]->statements)
      for (const Operand &o : s.operands)
        visit(*reached[k], o);
  uint64_t offset = 0, dynamicAlign = 1;
  for (auto &[name, v] : wanted)
    if (!v->external) {
      offset = alignTo(offset, v->align);
      shared[name] = offset;
      offset += v->bytes;
    } else {
      dynamicAlign = std::max<uint64_t>(dynamicAlign, v->align);
    }
  offset = alignTo(offset, dynamicAlign);
  for (auto &[name, v] : wanted)
    if (v->external)
      shared[name] = offset;
  out.description.staticShared = offset;
}

void EntryDecoder::add(const FunctionText &text) {
  if (!text.defined)
    failAt(text.line, "function " + text.name + " is called and not defined");
  auto &decoder = functions[&text];
  decoder = std::make_unique<FunctionDecoder>(FunctionDecoder{*this, text, 0, {}, None, 0, 0});
  FunctionDecoder &f = *decoder;
  f.registers = reserve(text.registerBytes);
  auto place = [&](const Variable &v) {
    uint64_t at = alignTo(out.frame.local, std::max<uint64_t>(v.align, 1));
    f.local[v.name] = at;
    out.frame.local = uint32_t(alignTo(at + v.bytes, 16));
  };
  for (const Variable &v : text.variables)
    if (v.space != Space::Shared)
      place(v);
  if (!text.entry) {
    for (const Variable &v : text.parameters)
      place(v);
    for (const Variable &v : text.results)
      place(v);
  }

  std::vector<Instruction> &code = out.code;
  f.begin = uint32_t(code.size());
  auto label = [&](int line, const Operand &o) -> uint32_t {
    if (o.kind == Operand::Kind::Symbol)
      for (int scope = o.scope; scope >= 0; scope = text.parentScope[size_t(scope)])
        if (auto found = text.labels.find({scope, o.name}); found != text.labels.end())
          return found->second;
    failAt(line, "unknown label " + o.name);
  };
  constexpr uint32_t toEnd = None - 1;
  std::vector<uint32_t> placeOf(text.statements.size() + 1);
  std::vector<uint32_t> branches; // whose targets are still statement indices
  struct Call {
    uint32_t at;
    const FunctionText *callee;
    const Statement *statement;
  };
  std::vector<Call> calls;
  auto kindOf = [&](const Statement &s) {
    std::string name = s.opcode;
    for (const std::string &m : s.modifiers)
      name += "." + m;
    auto found = std::find(program.kinds.begin(), program.kinds.end(), name);
    if (found == program.kinds.end())
      found = program.kinds.insert(found, name);
    return uint32_t(found - program.kinds.begin());
  };
  for (size_t n = 0; n < text.statements.size(); ++n) {
    const Statement &s = text.statements[n];
    placeOf[n] = uint32_t(code.size());
    if (s.opcode == ".branchtargets")
      continue;
    Decoder d(f, s);
    d.i.kind = kindOf(s);
    if (s.opcode == "bra") {
      d.ignore({"uni"});
      d.expect(1, 1);
      d.set(jump, Flow::Branch);
      d.i.target = label(s.line, s.operands[0]);
      branches.push_back(uint32_t(code.size()));
    } else if (s.opcode == "brx") {
      if (!d.take("idx"))
        d.fail("only brx.idx is known");
      d.ignore({"uni"});
      d.expect(2, 2);
      d.set(jump, Flow::Table);
      d.i.op = {d.source(0, Type::B32)};
      const Statement &list = text.statements.at(label(s.line, s.operands[1]));
      if (list.opcode != ".branchtargets")
        d.fail(s.operands[1].name + " is no list of targets");
      for (const Operand &o : list.operands)
        d.i.table.push_back(label(s.line, o));
      branches.push_back(uint32_t(code.size()));
    } else if (s.opcode == "ret" || s.opcode == "exit") {
      d.ignore({"uni"});
      d.expect(0, 0);
      bool leaves = text.entry || s.opcode == "exit";
      d.set(jump, leaves ? Flow::Exit : Flow::Branch);
      if (!leaves) {
        d.i.target = toEnd;
        branches.push_back(uint32_t(code.size()));
      }
    } else if (s.opcode == "trap") {
      d.expect(0, 0);
      d.set(trap);
    } else if (s.opcode == "call") {
      d.ignore({"uni"});
      std::vector<Operand> results, arguments;
      size_t at = 0;
      if (at < s.operands.size() && s.operands[at].kind == Operand::Kind::Tuple)
        results = s.operands[at++].elements;
      const FunctionText *callee = at < s.operands.size() ? find(s.operands[at].name) : nullptr;
      if (!callee)
        d.fail("only calls of functions of the module are supported");
      if (++at < s.operands.size())
        arguments = s.operands[at++].elements;
      if (at != s.operands.size() || arguments.size() != callee->parameters.size() ||
          results.size() != callee->results.size())
        d.fail("arguments or results do not fit the function " + callee->name);
      calling.push_back(&text);
      if (std::find(calling.begin(), calling.end(), callee) != calling.end())
        d.fail("recursion is not supported");
      calling.pop_back();
      calls.push_back({uint32_t(code.size()), callee, &s});
      d.set(passParameter, Flow::Call);
      d.done();
      code.push_back(d.i);
      Instruction back = d.i; // copies the results after the callee returns
      back.flow = Flow::Next;
      code.push_back(back);
      continue;
    } else {
      auto found = opcodes().find(s.opcode);
      if (found == opcodes().end())
        failAt(s.line, "unknown instruction " + s.opcode);
      found->second(d);
    }
    d.done();
    code.push_back(std::move(d.i));
  }
  placeOf.back() = uint32_t(code.size());
  Instruction end; // an implicit ret
  end.run = jump;
  end.flow = text.entry ? Flow::Exit : Flow::Return;
  end.line = text.statements.empty() ? text.line : text.statements.back().line;
  end.kind = kindOf(Statement{0, {}, "ret", {}, {}});
  code.push_back(end);
  f.end = uint32_t(code.size());
  for (uint32_t at : branches) {
    auto to = [&](uint32_t statement) { return statement == toEnd ? f.end - 1 : placeOf[statement]; };
    if (code[at].flow == Flow::Branch)
      code[at].target = to(code[at].target);
    for (uint32_t &t : code[at].table)
      t = to(t);
  }
  findMeetings(code, f.begin, f.end);

  for (auto &[at, callee, statement] : calls) {
    if (!functions.count(callee)) {
      calling.push_back(&text);
      add(*callee);
      calling.pop_back();
    }
    FunctionDecoder &g = *functions.at(callee);
    out.code[at].target = g.begin;
    bool hasResults = statement->operands[0].kind == Operand::Kind::Tuple;
    auto pair = [&](const std::vector<Operand> &own, const std::vector<Variable> &others, bool back) {
      std::vector<uint32_t> copies;
      for (size_t k = 0; k < own.size(); ++k) {
        auto mine = f.local.find(own[k].name);
        if (mine == f.local.end())
          failAt(statement->line, "call: " + own[k].name + " is no .param variable");
        auto there = uint32_t(g.local.at(others[k].name)), here = uint32_t(mine->second);
        copies.insert(copies.end(), {back ? there : here, back ? here : there, uint32_t(others[k].bytes)});
      }
      return copies;
    };
    size_t argument = hasResults ? 2 : 1;
    if (statement->operands.size() > argument)
      out.code[at].op = pair(statement->operands[argument].elements, callee->parameters, false);
    out.code[at + 1].op =
        hasResults ? pair(statement->operands[0].elements, callee->results, true) : std::vector<uint32_t>();
  }
}

// How few bytes a lane accesses at a time, if fewer than 4. Bulk copies and wgmma access elements of 2 bytes.
static uint32_t narrowestAccess(const Instruction &i, const std::string &kind) {
  if (kind.starts_with("wgmma.") || kind.starts_with("cp.async.bulk"))
    return 2;
  const bool narrow = (kind.starts_with("ld.") || kind.starts_with("st.")) && i.at[0].space != Space::Param;
  return narrow ? uint32_t(i.width * i.count) : 4;
}

void EntryDecoder::run(const FunctionText &entry) {
  layShared(entry);
  add(entry);
  watchProductRegisters(out);
  for (const Instruction &i : out.code)
    if (const std::string &kind = program.kinds[i.kind]; kind.starts_with("atom") || kind.starts_with("red."))
      out.globalAtomics |= i.at[0].space != Space::Shared;
  out.narrowest = 4;
  for (const Instruction &i : out.code)
    out.narrowest = std::min(out.narrowest, narrowestAccess(i, program.kinds[i.kind]));
  Interpreter::Entry &d = out.description;
  d.function = &out;
  for (const Variable &v : entry.parameters) {
    d.parameters.emplace_back(v.address, v.bytes);
    d.parameterBytes = v.address + v.bytes;
  }
  d.required = entry.required;
  if (entry.cluster.x)
    d.cluster = entry.cluster;
  Dimensions most = entry.required.x ? entry.required : entry.maximum;
  d.maximum = most.x ? most.x * std::max(1u, most.y) * std::max(1u, most.z) : 1024;
}

std::unique_ptr<Program> decode(ModuleText text, Memory &memory) {
  auto program = std::make_unique<Program>();
  program->text = std::move(text);
  auto &variables = program->text.variables;
  for (Variable &v : variables)
    if (v.space == Space::Global || v.space == Space::Const) {
      Allocation &a = memory.allocate(v.bytes);
      memset(a.data.get(), 0, v.bytes);
      memcpy(a.data.get(), v.data.data(), v.data.size());
      v.address = a.address;
      program->variables[v.name] = a.address;
      program->allocations.push_back(a.address);
    }
  for (Variable &v : variables) {
    for (const Variable::Pointer &p : v.pointers) {
      auto found = program->variables.find(p.symbol);
      if (found == program->variables.end())
        throw Error("the initial value of " + v.name + " names " + p.symbol + ", which is no variable");
      uint64_t address = found->second + uint64_t(p.offset);
      memcpy(memory.bytes(v.address + p.at, 8), &address, 8);
    }
    if (v.space == Space::Const)
      memory.find(v.address, 0, nullptr)->constant = true;
  }
  for (const FunctionText &f : program->text.functions)
    if (f.entry) {
      auto function = std::make_unique<Function>();
      function->program = program.get();
      function->name = f.name;
      function->entry = true;
      EntryDecoder{*program, *function, {}, {}, {}, {}, {}}.run(f);
      program->functions.push_back(std::move(function));
    }
  return program;
}

} // namespace xfc::ptx
