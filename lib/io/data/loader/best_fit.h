#pragma once

#include <cstdint>
#include <vector>

namespace lyceum {

/// Places spans into sequences of seq_len inputs, one after the other. Each span is placed into the open sequence in
/// which it leaves the least room, the first of several; if it fits into none, into a new sequence (best fit). A
/// placement takes O(log(open sequences)). Uses 24 · seq_len bytes, and for each amount of room 8 to 16 bytes times the
/// largest number of sequences that had it at one time.
class BestFit {
 public:
  /// `least`: the number of inputs of the smallest span that will be placed, 1 to seq_len.
  BestFit(std::int64_t seq_len, std::int64_t least);
  /// Places a span of `inputs` inputs, least to seq_len, and returns the index of its sequence.
  std::int64_t place(std::int64_t inputs);
  /// Returns the number of sequences so far.
  std::int64_t sequences() const { return sequences_; }

 private:
  /// A set of integers in [0, size). Its levels are bit sets: bit i of a level is set if word i of the level before it
  /// has a bit set.
  class Numbers {
   public:
    explicit Numbers(std::int64_t size);
    void insert(std::int64_t number);
    void erase(std::int64_t number);
    /// Returns the smallest member that is not below `number`, −1 if there is none.
    std::int64_t first_from(std::int64_t number) const;

   private:
    std::vector<std::vector<std::uint64_t>> levels_;
  };

  std::int64_t seq_len_, least_, sequences_ = 0;
  std::vector<std::vector<std::int64_t>> open_;  // [seq_len]: open sequences by their room; each is a heap
  Numbers rooms_;                                // the rooms whose heap in open_ is not empty
};

}  // namespace lyceum
