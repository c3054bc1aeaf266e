#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/comm/pending.h"
#include "parallel/comm/transport.h"

namespace lyceum {

enum class Reduction { sum, max, min };
/// The call site of an operation, as the ledger records it. Converts from std::source_location.
struct Where {
  Where(std::source_location location, std::int64_t unit = 0) : location(location), unit(unit) {}  // NOLINT: implicit
  std::source_location location;
  /// If the size of the payload depends on the data: the size in bytes on which all ranks must agree, such as that of
  /// one row. 0: all ranks pass payloads of the same size.
  std::int64_t unit;
};
/// Thrown by a rank whose wait timed out, if another rank has found the cause and reports it.
class ReportedElsewhere : public Error {
 public:
  ReportedElsewhere(const std::string& message, std::source_location where, int reporter)
      : Error(ExitCode::failed, message, where), reporter_(reporter) {}
  /// Returns the process id of the rank that reports; 0 if that rank is on another machine.
  int reporter() const { return reporter_; }

 private:
  int reporter_;
};

class Carrier;
class Communicator;
class Ledger;
class TensorTransport;
class Turns;

/// A group of ranks that communicate with each other. It owns its MPI communicator and is passed explicitly. The groups
/// made by world(), self() and rehearsal() are called worlds; split() and on() derive further groups, which share the
/// timeout, ledger and turns of their world.
///
/// Unless stated otherwise every call is collective over the group: all its ranks must start the same operations in the
/// same order. A wait that exceeds the group's timeout throws an Error (exit code 4), after which the group is
/// unusable. All groups of a process must be used by a single thread.
///
/// Tensors, and the buffers of an AllToAll, are in host memory and are sent by MPI, unless the group was derived from
/// one returned by `on()` for a device. Spans, texts and numbers are always in host memory. On a device, an operation
/// begins after all work that was in the stream when the operation was started. Work added to the stream after wait()
/// sees the result. With NCCL wait() may return before the result exists: it only makes the stream wait. Synchronising
/// the stream then waits for the other ranks too, and the group's timeout applies to that wait.
///
/// Example: all-reduce over 4 ranks.
///
///     std::vector<float> values{static_cast<float>(group.rank()), 10};
///     group.all_reduce(std::span(values));  // {0 + 1 + 2 + 3, 4 · 10} = {6, 40} on every rank
///
/// Example: all-to-all between 2 ranks, with rows of one float. Rank 0 holds {1, 2, 3}, keeps one row and sends two.
/// Rank 1 holds {4} and sends it to rank 0. Each rank must know how many rows it receives from each rank.
///
///     //                     rank 0      rank 1
///     // sent                {1, 2, 3}   {4}
///     // send_rows           {1, 2}      {1, 0}     by receiver
///     // receive_rows        {1, 1}      {2, 0}     by sender
///     // received afterwards {1, 4}      {2, 3}     ordered by sender
///     group.all_to_all({.sent = sent.data(),
///                       .send_rows = send_rows,
///                       .received = received.data(),
///                       .receive_rows = receive_rows,
///                       .row_bytes = sizeof(float)});
///
/// Example: split of 4 ranks into the groups {0, 2} and {1, 3}.
///
///     const ProcessGroup parity = world.split([](int rank) { return rank % 2; }, "parity");
///     // on rank 2 of `world`: parity.rank() == 1, parity.size() == 2, parity.members() == {0, 2}
class ProcessGroup {
 public:
  /// Collective over the job. Returns the group of all its ranks. MPI must be initialised. `timeout`: maximum duration
  /// of a wait, in seconds; throws a usage Error unless it is positive. Ranks with the same `machine` read each other's
  /// ledgers in shared memory, other ranks query them by messages. Default for `machine`: the host name.
  static ProcessGroup world(double timeout, const std::string& machine = {});
  /// Returns a group of this rank alone, which does not need MPI. Operations copy; no traffic is counted.
  static ProcessGroup self(std::string name = "self");
  /// Returns rank `rank`'s view of a job of `ranks` ranks that does not run (see RehearsalStream). Operations are
  /// recorded in the ledger, counted as traffic, and complete at once. No tensor data is received. Numbers and texts
  /// from other ranks are copies of what this rank sends to itself. `counts_messages`: whether operations add to
  /// sent_messages(), which takes time that grows with the ranks.
  static ProcessGroup rehearsal(int rank, int ranks, bool counts_messages = false);
  /// Collective. Returns a group of the same ranks whose tensors are in the memory of `stream`, with its own traffic
  /// counters. Groups split from it use the same stream and transport. A host stream requires Transport::mpi, a GPU
  /// stream Transport::staged or Transport::nccl; throws a usage Error otherwise. A RehearsalStream accepts any
  /// transport. `nccl` applies to Transport::nccl and must be the same on all ranks.
  [[nodiscard]] ProcessGroup on(Stream stream, Transport transport, const NcclOptions& nccl = {},
                                Where where = std::source_location::current()) const;
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) noexcept;
  ~ProcessGroup();

  int rank() const;
  int size() const;
  const std::string& name() const;
  /// Returns the maximum duration of a wait, in seconds.
  double timeout() const;
  /// Local. Sets timeout() of all groups of this world on this rank. Applies to waits in progress too.
  void set_timeout(double seconds) const;
  /// Returns the rank in the job of each rank of the group.
  const std::vector<int>& members() const;
  /// Enables or disables checksums of tensors that are sent by MPI, for all groups of this world. A message that was
  /// corrupted in transit then throws an Error that names the sender. All ranks must pass the same value at the same
  /// point of their sequences of operations.
  void set_checksums(bool on) const;
  /// Divides the group by colour and returns this rank's part: the ranks with the same colour (>= 0), in the order of
  /// this group. All ranks must pass the same function. `name` is used in errors.
  [[nodiscard]] ProcessGroup split(const std::function<int(int rank)>& colour_of, std::string name,
                                   Where where = std::source_location::current()) const;
  /// Splits the group like the previous function, but each rank passes its own colour, and ranks are ordered by `key`.
  /// In a rehearsal of several ranks the colour must be 0 and the key the rank.
  [[nodiscard]] ProcessGroup split(int colour, int key, std::string name,
                                   Where where = std::source_location::current()) const;

  /// Blocks until all ranks of the group have called it.
  void barrier(Where where = std::source_location::current()) const;
  /// Reduces `values` over the ranks, in place. Types: f32, bf16, f64, i32, i64. Over MPI, elements are summed in a
  /// fixed order, in groups of up to 8 ranks x_0 + x_1 + … in rank order, in larger groups in that of ReductionLevel
  /// (bf16: in f32, rounded once). So the bits are the same on every rank and in every run, and a NaN of any rank
  /// propagates to the result, for max and min too. See Transport for NCCL. The operation keeps the tensor's memory
  /// alive.
  Pending all_reduce_async(const Tensor& values, Reduction reduction = Reduction::sum,
                           Where where = std::source_location::current()) const;
  void all_reduce(std::span<float> values, Reduction reduction = Reduction::sum,
                  Where where = std::source_location::current()) const;
  void all_reduce(std::span<double> values, Reduction reduction = Reduction::sum,
                  Where where = std::source_location::current()) const;
  void all_reduce(std::span<std::int64_t> values, Reduction reduction = Reduction::sum,
                  Where where = std::source_location::current()) const;
  /// Writes to `own` the sum over all ranks of this rank's part of `values`; over MPI, with the bits that all_reduce
  /// would produce. `values` holds one part for each rank, in rank order; part r has extents[r] >= 0 elements. All
  /// ranks must pass the same extents. Types as for all_reduce; only the sizes of the tensors matter, not their shapes.
  /// `own` may be the memory of this rank's part in `values`; the other parts are only read. If its part is empty,
  /// `own` may be an undefined tensor. The operation keeps the memory alive.
  Pending reduce_scatter_async(const Tensor& values, const Tensor& own, std::span<const std::int64_t> extents,
                               Where where = std::source_location::current()) const;
  void reduce_scatter(const Tensor& values, const Tensor& own, std::span<const std::int64_t> extents,
                      Where where = std::source_location::current()) const;
  /// The inverse: copies the `own` of every rank to `values` on all ranks, in rank order. Any type. If `own` is the
  /// memory of this rank's part in `values`, that part is not copied.
  Pending all_gather_async(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                           Where where = std::source_location::current()) const;
  void all_gather(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                  Where where = std::source_location::current()) const;

  /// Sends a tensor to one rank, or receives one. Not collective. The k-th send from rank a to rank b is matched with
  /// the k-th receive on b from a. Tensors may have any type and size, including 0. Over MPI, the receiver throws an
  /// Error if the sizes differ. The operation keeps the memory alive.
  Pending send_async(const Tensor& values, int to, Where where = std::source_location::current()) const;
  Pending receive_async(const Tensor& values, int from, Where where = std::source_location::current()) const;

  /// Copies `bytes`, whose size must be the same on all ranks, or `text` from `root` to all ranks.
  void broadcast(std::span<std::byte> bytes, int root, Where where = std::source_location::current()) const;
  std::string broadcast(std::string text, int root, Where where = std::source_location::current()) const;
  /// Returns the texts of all ranks, in rank order, on every rank.
  std::vector<std::string> all_gather(const std::string& text, Where where = std::source_location::current()) const;
  /// Returns the texts of all ranks, in rank order, on `root`, and nothing on other ranks. Texts are sent along a tree,
  /// so another rank may temporarily hold up to half of them.
  std::vector<std::string> gather(const std::string& text, int root,
                                  Where where = std::source_location::current()) const;
  /// Sets received[r · n + i] to sent[i] of rank r, where n = sent.size() is the same on all ranks.
  void all_gather(std::span<const std::int64_t> sent, std::span<std::int64_t> received,
                  Where where = std::source_location::current()) const;
  void all_gather(std::span<const std::int32_t> sent, std::span<std::int32_t> received,
                  Where where = std::source_location::current()) const;

  /// Sends `send_rows[r]` rows of `row_bytes` bytes to each rank r and receives `receive_rows[r]` rows from it. Rows
  /// are stored in rank order on both sides. Counts may be 0. A message may exceed 2 GB. Over MPI, a receiver that gets
  /// an unexpected number of rows throws an Error that names the sender; if it gets no message at all, its wait times
  /// out.
  struct AllToAll {
    const void* sent;
    std::span<const std::int64_t> send_rows;
    void* received;
    std::span<const std::int64_t> receive_rows;
    std::int64_t row_bytes;
    /// Optional. Keeps both buffers alive until the operation has ended, even if it is abandoned.
    std::shared_ptr<const void> owner{};
  };
  Pending all_to_all_async(const AllToAll& exchange, Where where = std::source_location::current()) const;
  /// Exchanges rows of several tensors in one operation, with the results of one all_to_all_async() for each. All ranks
  /// must pass equally many exchanges, of the same row_bytes. Takes fewer messages: NCCL sends all tensors together,
  /// and over MPI, few rows of several tensors for a rank travel in one message (RowExchange).
  Pending all_to_all_async(std::span<const AllToAll> exchanges, Where where = std::source_location::current()) const;
  void all_to_all(const AllToAll& exchange, Where where = std::source_location::current()) const;
  /// An all-to-all of numbers in host memory: `send_counts[r]` of them are sent to rank r.
  struct NumbersToAll {
    std::span<const std::int64_t> sent, send_counts;
    std::span<std::int64_t> received;
    std::span<const std::int64_t> receive_counts;
  };
  void all_to_all(const NumbersToAll& exchange, Where where = std::source_location::current()) const;

  /// Bytes that this rank has passed to operations of this group, by kind; `lyceum plan` predicts them. Groups of one
  /// rank count nothing.
  /// - all_reduce: the payload
  /// - reduce_scatter: all parts
  /// - all_to_all: the rows for other ranks
  /// - all_gather: this rank's part, counted once; gather too
  /// - send: the payload
  /// - broadcast: the payload, on the root only
  ///
  /// A broadcast text also counts its length (8 B). An all_gather of texts counts as a gather and a broadcast of all
  /// texts.
  struct Traffic {
    std::int64_t all_reduce = 0, reduce_scatter = 0, all_to_all = 0, all_gather = 0, send = 0, broadcast = 0;
  };
  const Traffic& traffic() const;
  /// Returns the number of MPI messages that this rank has sent in operations of all groups of this world. It does not
  /// include checksums, queries of ledgers (Watch), and messages inside MPI's own collectives, which implement
  /// barriers, broadcasts, splits, and all-gathers of numbers in groups of up to 8 ranks. In a rehearsal with
  /// `counts_messages`, returns the number for the same operations if MPI sent the tensors; in other rehearsals 0.
  std::int64_t sent_messages() const;
  /// Returns the record of this rank's latest operations on all groups of this world.
  Ledger& ledger() const;
  /// Returns the scheduler of two alternating tasks on this rank, shared by all groups of this world.
  Turns& turns() const;

  struct Implementation;

 private:
  void all_gather_bytes(std::span<const std::byte> sent, std::span<std::byte> received, Where where) const;
  explicit ProcessGroup(std::shared_ptr<Implementation> implementation);
  static ProcessGroup create(std::shared_ptr<Communicator> communicator, std::shared_ptr<TensorTransport> transport,
                             std::unique_ptr<Carrier> carrier);
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace lyceum
