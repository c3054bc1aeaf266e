#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "parallel/expert/expert_route.h"
#include "parallel/expert/expert_rows.h"
#include "parallel/tensor/collectives.h"

namespace lyceum {

/// Rows that travel between the ranks of a group while this rank goes on: over NCCL. MPI moves large messages only
/// while somebody waits for one; what was late is then waited for later, no more. Of two tasks that take turns
/// (ProcessGroup::turns()) the other goes on where one would wait for rows. Rows that travel only because something is
/// computed again end no turn: of a forward and a backward pass the former, which has none, would come ahead, and hide
/// as many exchanges, but keep the results of more layers.
class RowsUnderWay {
 public:
  RowsUnderWay() = default;
  /// Sends every rank `send_rows[r]` of the rows, in rank order, and receives `receive_rows[r]`. Collective.
  RowsUnderWay(const Stream& stream, const ProcessGroup& group, Tensor rows, std::span<const std::int64_t> send_rows,
               std::span<const std::int64_t> receive_rows);

  /// Where they arrive; not to be read yet.
  const Tensor& destination() const { return received_; }
  /// Waits for them where they are; again it does nothing.
  void wait(const Stream& stream);
  /// Waits for them, and gives them. Once. `ends_turn`: where another task may go on before.
  Tensor arrived(const Stream& stream, bool ends_turn = true);

 private:
  const ProcessGroup* group_ = nullptr;
  Tensor sent_, received_;
  Pending pending_;
};

/// Rows of tokens to the ranks of a hop's group, each row once to each rank that experts of the token lie behind.
///   tokens    as this rank has them
///   sent      sorted by rank, then token
///   received  sorted by source rank, then the token's place there
struct TokenExchange {
  const ProcessGroup* group;
  TokenRows copies;                                   // of tokens, as sent: pairs are first choices behind a rank
  std::vector<std::int64_t> send_rows, receive_rows;  // [ranks]
  std::int64_t pairs;                                 // choices of received tokens that lie behind this rank
  bool overlaps = true;                               // false: rows are waited for where they begin to travel

  /// Any type. [tokens, width] → [received, width]
  RowsUnderWay send(const Stream& stream, const Tensor& x) const;
  /// The way back. [received, width] → [sent, width]
  RowsUnderWay answer(const Stream& stream, const Tensor& y) const;
  /// Each token's sum over the ranks that it was sent to, in the order of its first choices behind them. Of bf16, rows
  /// travel rounded and are added up in f32. [sent, width] → [tokens, width]
  Tensor sums(const Stream& stream, const Tensor& answers) const { return copies.sums(stream, answers); }
};

/// Collective over the hop's group. The host waits for the device once, to know how many rows travel. index: i32
/// [tokens, k], experts or −1 for none. `overlaps`: see TokenExchange.
std::shared_ptr<const TokenExchange> plan_exchange(const Stream& stream, const Hop& hop, const Tensor& index,
                                                   bool overlaps = true);

/// Tokens to the ranks of their experts, in two operations: they travel while the tape does what is between the two.
/// Backwards each token's sum, likewise. Only TakeTokens may read the result of SendTokens.
struct SendTokens {
  std::shared_ptr<const TokenExchange> exchange;
  std::shared_ptr<RowsUnderWay> under_way;  // TakeTokens has the same

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_sent) const;
};
struct TakeTokens {
  std::shared_ptr<const TokenExchange> exchange;
  std::shared_ptr<RowsUnderWay> under_way;
  bool ends_turn = true;  // forwards

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& sent) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& d_received) const;
};
/// SendTokens and TakeTokens in one operation, by which Tape::release() receives the tokens again.
struct SendTokensAgain {
  std::shared_ptr<const TokenExchange> exchange;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
};

/// The way back: what ranks made of a token, as its sum; backwards sends.
struct SumAnswers {
  std::shared_ptr<const TokenExchange> exchange;
  bool ends_turn = true;  // forwards

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& answers) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// Tokens on a rank, with what their router chose.
struct TokensAndChoices {
  Variable x, gates;        // [tokens, hidden], [tokens, k]
  Tensor index;             // i32 [tokens, k]: experts, or −1 for none
  std::int64_t pairs = -1;  // choices that lie behind this rank; −1: not known
};

/// The tokens that come to this rank. What `meanwhile` applies to the tape runs while they travel, forwards and
/// backwards. The gradient of a gate is 0 on all ranks but its expert's: sums of them are exact.
TokensAndChoices dispatched(
    Tape& tape, const std::shared_ptr<const TokenExchange>& exchange, const TokensAndChoices& tokens,
    const std::function<void()>& meanwhile = [] {});
/// The tokens of all ranks of a group, in rank order. Collective.
struct GatheredTokens {
  RowShards shards;
  TokensAndChoices all;
};
GatheredTokens gathered(Tape& tape, const ProcessGroup& group, const TokensAndChoices& tokens);

/// The rows of this rank's experts, of tokens at the end of their route.
std::shared_ptr<const ExpertRows> rows_of_experts(const Stream& stream, const ExpertRoute& route,
                                                  const TokensAndChoices& tokens);

}  // namespace lyceum
