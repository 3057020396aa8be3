// The programs of a module, each of which is read when it is first needed.
#include "plan/ProgramList.h"
#include "plan/Plan.h"
#include <algorithm>
#include <mutex>
#include <utility>

namespace xfc {

struct ProgramList::Entry {
  explicit Entry(Program program) : name(program.name), program(std::move(program)) {}
  Entry(std::string name, std::function<Program()> reader) : name(std::move(name)), reader(std::move(reader)) {}

  Program &read() {
    const std::lock_guard guard(reading);
    if (reader) {
      program = reader();
      reader = nullptr;
    }
    return program;
  }

  const std::string name; // known before the program is read

private:
  std::mutex reading;
  Program program;
  std::function<Program()> reader; // none once the program is read
};

ProgramList::ProgramList() = default;
ProgramList::ProgramList(std::initializer_list<Program> programs) {
  for (const Program &program : programs)
    push_back(program);
}
ProgramList::ProgramList(const ProgramList &other) {
  for (const std::unique_ptr<Entry> &entry : other.entries)
    push_back(entry->read());
}
ProgramList::ProgramList(ProgramList &&) noexcept = default;
ProgramList &ProgramList::operator=(ProgramList other) noexcept { // copies or moves into `other`
  entries = std::move(other.entries);
  return *this;
}
ProgramList::~ProgramList() = default;

void ProgramList::push_back(Program program) { entries.push_back(std::make_unique<Entry>(std::move(program))); }
void ProgramList::push_back(std::string name, std::function<Program()> read) {
  entries.push_back(std::make_unique<Entry>(std::move(name), std::move(read)));
}
size_t ProgramList::size() const { return entries.size(); }

std::vector<std::string> ProgramList::names() const {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const std::unique_ptr<Entry> &entry : entries)
    names.push_back(entry->name);
  return names;
}

void ProgramList::readAll() const {
  for (const std::unique_ptr<Entry> &entry : entries)
    entry->read();
}

bool ProgramList::has(std::string_view name) const {
  return std::ranges::any_of(entries, [&](const std::unique_ptr<Entry> &entry) { return entry->name == name; });
}

Program *ProgramList::find(std::string_view name) {
  for (const std::unique_ptr<Entry> &entry : entries)
    if (entry->name == name)
      return &entry->read();
  return nullptr;
}
const Program *ProgramList::find(std::string_view name) const { return const_cast<ProgramList *>(this)->find(name); }

Program &ProgramList::operator[](size_t index) { return entries[index]->read(); }
const Program &ProgramList::operator[](size_t index) const { return entries[index]->read(); }

} // namespace xfc
