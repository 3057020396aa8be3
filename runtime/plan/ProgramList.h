// The programs of a module, each of which is read when it is first needed.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

struct Program;

// One that comes from a serialized plan is read when it is first accessed, since a run needs only a few; the access
// throws Error if the program's part of the plan is damaged. Any thread may access a program while no program is added.
// A reference to a program stays valid when others are added; its name must not change.
class ProgramList {
public:
  ProgramList();
  ProgramList(std::initializer_list<Program> programs);
  ProgramList(const ProgramList &other); // reads all programs
  ProgramList(ProgramList &&) noexcept;
  ProgramList &operator=(ProgramList other) noexcept;
  ~ProgramList();
  void push_back(Program program);
  // Adds a program that is not read yet. `read` is called once, on the first access, by one thread.
  void push_back(std::string name, std::function<Program()> read);
  size_t size() const;
  bool has(std::string_view name) const;
  std::vector<std::string> names() const; // in order
  void readAll() const;                   // so that damage shows at once
  // Null if there is no such program.
  const Program *find(std::string_view name) const;
  Program *find(std::string_view name);
  const Program &operator[](size_t index) const;
  Program &operator[](size_t index);

private:
  struct Entry;
  std::vector<std::unique_ptr<Entry>> entries;
};

} // namespace xfc
