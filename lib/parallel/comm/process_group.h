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
/// What the ledger notes of a call besides what it moves: its place and, where the number of bytes depends on the data,
/// what of it all ranks know beforehand (the size of a row, say); 0: all of it.
struct Where {
  Where(std::source_location place, std::int64_t unit = 0) : place(place), unit(unit) {}  // NOLINT: implicit
  std::source_location place;
  std::int64_t unit;
};
/// A wait lasted too long on this rank too, but another one found out why and is to report it.
class ReportedElsewhere : public Error {
 public:
  ReportedElsewhere(const std::string& message, std::source_location where, int reporter)
      : Error(ExitCode::failed, message, where), reporter_(reporter) {}
  /// The process that reports, of this machine; 0 if it is on another one.
  int reporter() const { return reporter_; }

 private:
  int reporter_;
};

class Carrier;
class Communicator;
class Ledger;
class TensorTransport;
class Turns;

/// Ranks that communicate: owns its communicator, is passed explicitly. Every call is collective over the group unless
/// it says otherwise: all ranks start the same operations in the same order. Every wait ends after the group's timeout
/// with an Error (exit code 4); the group is unusable then. One thread uses all groups.
///
/// Tensors, and the memory of an AllToAll, lie in the host's memory and travel by MPI, unless the group comes from one
/// that is `on` a device. Spans, texts and numbers always lie in the host's memory. On a device an operation follows
/// all work that the stream has when it is started; work that the stream gets once it was waited for sees its result.
/// Such a wait need not last until the result is there: then whoever waits for the stream waits for other ranks too,
/// and is reported after the group's timeout.
class ProcessGroup {
 public:
  /// All ranks of the job; MPI must be initialised. `timeout`: seconds that any wait may last. Ranks that give the same
  /// `machine` read each other's ledgers in memory, others ask; empty: the host's name.
  static ProcessGroup world(double timeout, const std::string& machine = {});
  /// A group of one that needs no MPI: operations copy, nothing is counted as traffic.
  static ProcessGroup self(std::string name = "self");
  /// The part of rank `rank` in a job of `ranks` that is not there, see RehearsalStream: operations are noted in the
  /// ledger, counted as traffic, and over at once. Of what others would send, numbers alone arrive, as if each sent
  /// what this rank sends to itself.
  static ProcessGroup rehearsal(int rank, int ranks);
  /// The same ranks with tensors where `stream` computes; so do groups split from it. It counts its own traffic. On the
  /// host's stream they travel by MPI, on a GPU's stream staged or by NCCL; throws a usage Error otherwise. Collective.
  /// Nobody is there in a rehearsal, whose tensors may be anywhere.
  [[nodiscard]] ProcessGroup on(Stream stream, Transport transport,
                                Where where = std::source_location::current()) const;
  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) noexcept;
  ~ProcessGroup();

  int rank() const;
  int size() const;
  const std::string& name() const;
  /// Seconds that a wait may last.
  double timeout() const;
  /// Sets timeout() of all groups of this world, on this rank alone, for waits that begin or continue from now on.
  void set_timeout(double seconds) const;
  /// Ranks of the job, by rank of the group.
  const std::vector<int>& members() const;
  /// Whether tensors that travel by MPI have a checksum with each message from now on, in all groups of this world: a
  /// message that arrives changed is an Error that names its sender. All ranks say the same.
  void set_checksums(bool on) const;
  /// Ranks with the same colour (>= 0) form a group, in their order. All ranks give the same function. Errors call it
  /// `name`.
  [[nodiscard]] ProcessGroup split(const std::function<int(int rank)>& colour_of, std::string name,
                                   Where where = std::source_location::current()) const;
  /// The same with this rank's colour alone, ordered by `key`; in a rehearsal all must have colour 0 and keep their
  /// order.
  [[nodiscard]] ProcessGroup split(int colour, int key, std::string name,
                                   Where where = std::source_location::current()) const;

  void barrier(Where where = std::source_location::current()) const;
  /// In place; f32, bf16, f64, i32, i64. Sums are x_0 + x_1 + … in rank order, element by element, those of bf16 kept
  /// in f32 and rounded once: the same bits on every rank and in every run. A NaN of any rank reaches all, under max
  /// and min too. The tensor's memory is kept alive.
  Pending all_reduce_async(const Tensor& values, Reduction reduction = Reduction::sum,
                           Where where = std::source_location::current()) const;
  void all_reduce(std::span<float> values, Reduction reduction = Reduction::sum,
                  Where where = std::source_location::current()) const;
  void all_reduce(std::span<double> values, Reduction reduction = Reduction::sum,
                  Where where = std::source_location::current()) const;
  void all_reduce(std::span<std::int64_t> values, Reduction reduction = Reduction::sum,
                  Where where = std::source_location::current()) const;
  /// `values` holds every rank's part, in rank order, of `extents[r]` elements each (zero too); `own` becomes the sum
  /// of this rank's part, x_0 + x_1 + … in rank order: the bits that all_reduce leaves there. Types as there. `own` may
  /// be where its part of `values` is; the rest of `values` is only read. All ranks give the same extents. Shapes do
  /// not matter, sizes do; a part of nothing may be an undefined tensor. The memory is kept alive.
  Pending reduce_scatter_async(const Tensor& values, const Tensor& own, std::span<const std::int64_t> extents,
                               Where where = std::source_location::current()) const;
  void reduce_scatter(const Tensor& values, const Tensor& own, std::span<const std::int64_t> extents,
                      Where where = std::source_location::current()) const;
  /// The other way round: `values` becomes every rank's `own`, in rank order. Any type. `own` may lie where its part of
  /// `values` lies: nothing is copied then.
  Pending all_gather_async(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                           Where where = std::source_location::current()) const;
  void all_gather(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                  Where where = std::source_location::current()) const;

  /// A tensor to another rank, any type and size, none too: not collective. What one rank sends to another matches what
  /// that receives from it, in order; another size than the receiver expects is an Error there. The memory is kept
  /// alive.
  Pending send_async(const Tensor& values, int to, Where where = std::source_location::current()) const;
  Pending receive_async(const Tensor& values, int from, Where where = std::source_location::current()) const;

  void broadcast(std::span<std::byte> bytes, int root, Where where = std::source_location::current()) const;
  std::string broadcast(std::string text, int root, Where where = std::source_location::current()) const;
  /// Every rank's text, in rank order, on every rank.
  std::vector<std::string> all_gather(const std::string& text, Where where = std::source_location::current()) const;
  /// Every rank's text, in rank order, at the root; nothing on others. It travels along a tree, so another
  /// rank holds the texts of up to half of them meanwhile.
  std::vector<std::string> gather(const std::string& text, int root,
                                  Where where = std::source_location::current()) const;
  /// `received[r · n + i] = what rank r sent at [i]`, n = sent.size().
  void all_gather(std::span<const std::int64_t> sent, std::span<std::int64_t> received,
                  Where where = std::source_location::current()) const;

  /// Sends `send_rows[r]` rows of `row_bytes` bytes to rank r, in rank order, and receives `receive_rows[r]` from it.
  /// Counts are in rows, so that more than 2 GB may travel. Any count may be zero. A rank that sends another number of
  /// rows than its receiver expects is named in an Error there (none at all: the wait ends after the timeout).
  struct AllToAll {
    const void* sent;
    std::span<const std::int64_t> send_rows;
    void* received;
    std::span<const std::int64_t> receive_rows;
    std::int64_t row_bytes;
    /// Where set: what keeps both memories alive, as long as the operation, also one that is given up.
    std::shared_ptr<const void> owner{};
  };
  Pending all_to_all_async(const AllToAll& exchange, Where where = std::source_location::current()) const;
  void all_to_all(const AllToAll& exchange, Where where = std::source_location::current()) const;
  /// The same for numbers, `send_counts[r]` of them to rank r.
  struct NumbersToAll {
    std::span<const std::int64_t> sent, send_counts;
    std::span<std::int64_t> received;
    std::span<const std::int64_t> receive_counts;
  };
  void all_to_all(const NumbersToAll& exchange, Where where = std::source_location::current()) const;

  /// Bytes that this rank handed to operations so far, by kind: what `lyceum plan` predicts. all_reduce: the payload;
  /// reduce_scatter: all parts; all_to_all: rows for other ranks; all_gather: its own part, once, also of a gather;
  /// send: the payload; broadcast: the payload, at the root. Groups of one hand over nothing. A text that is
  /// broadcast counts with its length (8 B), and an all_gather of texts as a gather and a broadcast of all.
  struct Traffic {
    std::int64_t all_reduce = 0, reduce_scatter = 0, all_to_all = 0, all_gather = 0, send = 0, broadcast = 0;
  };
  const Traffic& traffic() const;
  /// What this rank did last on all groups that come from one world.
  Ledger& ledger() const;
  /// Of this rank, for all these groups.
  Turns& turns() const;

  struct Implementation;

 private:
  explicit ProcessGroup(std::shared_ptr<Implementation> implementation);
  static ProcessGroup made(std::shared_ptr<Communicator> communicator, std::shared_ptr<TensorTransport> transport,
                           std::unique_ptr<Carrier> carrier);
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace lyceum
