// The room for soft alignments, which take memory from when they are computed until the client has read the answer: as
// numbers, and then as text. All answers of a server together have room for so many pairs of tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace xfc {

// Any thread may use it.
class AlignmentRoom {
public:
  explicit AlignmentRoom(int64_t pairs) : left(pairs) {}

private:
  friend class HeldAlignments;
  std::atomic<int64_t> left; // pairs of tokens
};

// What one answer takes of it, until this ends. To be used from one thread at a time.
class HeldAlignments {
public:
  explicit HeldAlignments(std::shared_ptr<AlignmentRoom> room) : room(std::move(room)) {}
  ~HeldAlignments() { room->left += held; }
  HeldAlignments(const HeldAlignments &) = delete;
  // Takes room for so many more pairs. False, and nothing is taken: there is no room for them.
  bool take(int64_t pairs) {
    if (room->left.fetch_sub(pairs) < pairs) {
      room->left += pairs;
      return false;
    }
    held += pairs;
    return true;
  }

private:
  std::shared_ptr<AlignmentRoom> room;
  int64_t held = 0;
};

} // namespace xfc
