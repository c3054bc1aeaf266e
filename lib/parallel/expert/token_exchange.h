#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "parallel/expert/expert_route.h"
#include "parallel/expert/expert_rows.h"
#include "parallel/tensor/collectives.h"

namespace lyceum {

/// Rows of one or several tensors in flight between the ranks of a group, while this rank continues with other work.
/// Over NCCL the transfer runs in the background. MPI transfers large messages only while a rank waits for some
/// operation; the rest is transferred in wait().
///
/// With two alternating tasks (ProcessGroup::turns()), the other task continues when one is about to wait for rows.
/// Exchanges of a recomputation (Tape::recompute()) must not end a turn: backward passes would have more turns than
/// forward passes. Forward passes would run ahead, which hides no more exchanges but keeps the results of more layers.
class RowsInFlight {
 public:
  RowsInFlight() = default;
  /// Collective. Starts to send `send_rows[r]` rows of each tensor to each rank r, in rank order, and to receive
  /// `receive_rows[r]` rows of each. All tensors travel in one operation.
  RowsInFlight(const Stream& stream, const ProcessGroup& group, std::vector<Tensor> tensors,
               std::span<const std::int64_t> send_rows, std::span<const std::int64_t> receive_rows);
  RowsInFlight(const Stream& stream, const ProcessGroup& group, Tensor rows, std::span<const std::int64_t> send_rows,
               std::span<const std::int64_t> receive_rows)
      : RowsInFlight(stream, group, std::vector<Tensor>{std::move(rows)}, send_rows, receive_rows) {}

  /// Returns the memory of the received rows of a tensor; it must not be read yet.
  const Tensor& destination(std::size_t tensor = 0) const { return received_[tensor]; }
  /// Waits for the transfer, see Pending::wait(): work added to the stream afterwards can read the rows. Further calls
  /// have no effect.
  void wait(const Stream& stream);
  /// Waits for the rows and returns them, for each tensor. Call once. With `ends_turn`, first lets the other of two
  /// alternating tasks continue (Turns::before_wait()).
  std::vector<Tensor> all_arrived(const Stream& stream, bool ends_turn = true);
  /// Returns all_arrived() for a single tensor.
  Tensor arrived(const Stream& stream, bool ends_turn = true) { return all_arrived(stream, ends_turn).front(); }

 private:
  const ProcessGroup* group_ = nullptr;
  std::vector<Tensor> sent_, received_;
  Pending pending_;
};

/// Sends the rows of tokens to the ranks of a hop's group. A token is sent once to each rank that at least one of its
/// experts is behind (see Hop). There are three orders of rows:
/// - tokens: the order on this rank
/// - sent: sorted by destination rank, then by token
/// - received: sorted by source rank, then by the order of tokens there
/// In a bounded exchange the number of rows between two ranks is fixed. Rows that no token needs follow those of the
/// tokens for each rank: they are zero, and choose no expert.
struct TokenExchange {
  const ProcessGroup* group;
  TokenRows copies;  // maps between tokens and sent rows; the pair of a row is the token's first choice behind the rank
  std::vector<std::int64_t> send_rows, receive_rows;  // [ranks]
  std::int64_t pairs;  // number of choices of the received tokens that are behind this rank; -1 if bounded
  std::optional<RowBounds> bounds = {};  // of the received tokens, in a bounded exchange
  bool overlaps = true;                  // false: send() and answer() wait for the transfer

  /// Starts to send rows of any type, of one or several tensors. [tokens, width] → [received, width]
  RowsInFlight send(const Stream& stream, std::span<const Tensor> tensors) const;
  RowsInFlight send(const Stream& stream, const Tensor& x) const { return send(stream, std::span(&x, 1)); }
  /// Starts to return rows to the ranks they came from. [received, width] → [sent, width]
  RowsInFlight answer(const Stream& stream, std::vector<Tensor> tensors) const;
  RowsInFlight answer(const Stream& stream, const Tensor& y) const { return answer(stream, std::vector<Tensor>{y}); }
  /// Returns, for each token, the sum of its rows from all ranks that it was sent to, in the order of its first choices
  /// behind these ranks. bf16 rows are rounded before they are sent, and summed in f32. [sent, width] → [tokens, width]
  Tensor sums(const Stream& stream, const Tensor& answers) const { return copies.sums(stream, answers); }
};

/// Collective over the hop's group. Determines which token is sent to which rank. The host waits for the device once,
/// to learn the number of rows. `index`: i32 [tokens, k], chosen experts or -1 for none. `overlaps`: see TokenExchange.
std::shared_ptr<const TokenExchange> plan_exchange(const Stream& stream, const Hop& hop, const Tensor& index,
                                                   bool overlaps = true);
/// Does the same for a bounded exchange, without communication. The host does not wait. `bounds`: of the tokens on each
/// rank of the group.
std::shared_ptr<const TokenExchange> bounded_exchange(const Stream& stream, const Hop& hop, const Tensor& index,
                                                      const RowBounds& bounds, bool overlaps = true);

/// The state that a SendTokens shares with its TakeTokens: tokens in flight to the experts, or in the backward pass
/// their gradients in flight back.
struct TokensInFlight {
  Tensor index;  // i32: chosen experts of the tokens to send [tokens, k], then of the received ones
  std::array<bool, 2> differentiable{true, true};  // true if gradients of the tokens, and of their gates, are needed
  RowsInFlight rows{};
};
/// Send tokens, their gates and choices to the ranks of their experts, in two operations: the tokens are in flight
/// while the tape runs the operations between the two. In the backward pass, TakeTokens sends the gradients of tokens
/// and gates back, and SendTokens receives and sums them for each token. Only TakeTokens may read the results of
/// SendTokens.
struct SendTokens {
  std::shared_ptr<const TokenExchange> exchange;
  std::shared_ptr<TokensInFlight> in_flight;  // shared with the matching TakeTokens

  struct Saved {};
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& x, const Tensor& gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& d_sent,
                                 const Tensor& d_sent_gates) const;
};
struct TakeTokens {
  std::shared_ptr<const TokenExchange> exchange;
  std::shared_ptr<TokensInFlight> in_flight;
  bool ends_turn = true;  // in the forward pass, see RowsInFlight::all_arrived()

  struct Saved {};
  std::array<Tensor, 2> forward(const Stream& stream, Saved& saved, const Tensor& sent, const Tensor& sent_gates) const;
  std::array<Tensor, 2> backward(const Stream& stream, Saved& saved, const Tensor& d_received,
                                 const Tensor& d_received_gates) const;
};
/// Sends only the tokens, without gates and choices. Passed to Tape::release(), which recomputes the received tokens
/// with it.
struct SendTokensAgain {
  std::shared_ptr<const TokenExchange> exchange;

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& x) const;
};

/// Returns the experts' results to the ranks of the tokens and sums them for each token. The backward pass sends the
/// gradient of each token to the ranks of its experts.
struct SumAnswers {
  std::shared_ptr<const TokenExchange> exchange;
  bool ends_turn = true;  // in the forward pass, see RowsInFlight::all_arrived()

  struct Saved {};
  Tensor forward(const Stream& stream, Saved& saved, const Tensor& answers) const;
  std::array<Tensor, 1> backward(const Stream& stream, Saved& saved, const Tensor& dy) const;
};

/// Tokens on a rank, with their router's choices and gates.
struct TokensAndChoices {
  Variable x, gates;        // [tokens, hidden], [tokens, k]
  Tensor index;             // i32 [tokens, k]: chosen experts, or -1 for none
  std::int64_t pairs = -1;  // number of choices of experts behind this rank; -1: unknown
  /// If set, tokens travel in bounded exchanges.
  std::optional<RowBounds> bounds = {};
};

/// Collective over the group of `exchange`. Sends tokens, gates and choices to the ranks of `exchange` and returns the
/// received ones. Operations that `meanwhile` adds to the tape run while tokens (or their gradients) are in flight. The
/// gradient of a gate is 0 on all ranks but that of its expert, so the sum of these gradients is exact.
TokensAndChoices dispatched(
    Tape& tape, const std::shared_ptr<const TokenExchange>& exchange, const TokensAndChoices& tokens,
    const std::function<void()>& meanwhile = [] {});
/// The tokens of all ranks of a group, in rank order.
struct GatheredTokens {
  RowShards shards;
  TokensAndChoices all;
};
/// Collective over `group`. Gathers the tokens, gates and choices of all ranks on every rank. In the backward pass,
/// each rank gets, for its own tokens, the sum of the gradients of all ranks. With bounds, all ranks must have the same
/// number of tokens.
GatheredTokens gathered(Tape& tape, const ProcessGroup& group, const TokensAndChoices& tokens);

/// Assigns rows to the choices of this rank's experts, for tokens that have passed all hops of the route. `known`: see
/// KnownChoices::rows.
std::shared_ptr<const ExpertRows> rows_of_experts(const Stream& stream, const ExpertRoute& route,
                                                  const TokensAndChoices& tokens,
                                                  std::span<const std::int64_t> known = {});

}  // namespace lyceum
