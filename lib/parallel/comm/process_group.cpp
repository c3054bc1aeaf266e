#include "parallel/comm/process_group.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <limits>
#include <numeric>

#include "parallel/comm/all_reduce.h"
#include "parallel/comm/reduce_in_order.h"
#include "parallel/comm/reduce_scatter.h"
#include "parallel/comm/watch.h"

namespace lyceum {
namespace {

/// Messages are cut into pieces of this many bytes: MPI counts are ints.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 30;

constexpr int all_to_all_tag = 0, all_gather_tag = 1, point_to_point_tag = 2, first_reduce_tag = 3;
constexpr std::uint32_t reduce_tags = 1 << 14;

/// Calls `f(first, count)` for the pieces of `bytes` bytes, in order.
template <class F>
void for_pieces(std::int64_t bytes, F&& f) {
  for (std::int64_t first = 0; first < bytes; first += piece_bytes) {
    f(first, static_cast<int>(std::min(piece_bytes, bytes - first)));
  }
}

/// The same, with one piece of nothing where there are no bytes: a message that its receiver can count on.
template <class F>
void for_pieces_or_none(std::int64_t bytes, F&& f) {
  if (bytes == 0) f(0, 0);
  for_pieces(bytes, f);
}

std::int64_t total(std::span<const std::int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

constexpr std::uint64_t world_number = 1;

/// A communicator of the same ranks, made before the timeout or not at all.
MPI_Comm duplicate(MPI_Comm of, double timeout, const std::shared_ptr<SharedState>& shared) {
  // Until the duplicate exists, errors name a group of one.
  const Operation making{
      .name = "making a communicator", .bytes = 0, .size = 0, .where = std::source_location::current()};
  const auto maker = std::make_shared<Communicator>(Communicator::Identity{"world", world_number + 1}, timeout, shared,
                                                    std::vector<int>{0}, 0);
  const auto handle = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  auto state = std::make_unique<Pending::State>(maker, making);
  state->keep(handle);
  state->check(MPI_Comm_idup(of, handle.get(), state->request()));
  Pending(std::move(state)).wait();
  return *handle;
}

}  // namespace

struct ProcessGroup::Implementation {
  std::shared_ptr<Communicator> communicator;
  Traffic traffic{};
  std::uint32_t reductions = 0;  // started so far

  /// Starts an operation on a group of several ranks. Null in a rehearsal, where it is over when it is noted.
  std::unique_ptr<Pending::State> start(Operation operation) const {
    communicator->require_intact(operation);
    if (!rehearsed(operation)) return std::make_unique<Pending::State>(communicator, operation);
    return nullptr;
  }
  /// Whether this is a rehearsal; then it notes the operation.
  bool rehearsed(const Operation& operation) const {
    if (communicator->rehearses()) communicator->note(operation);
    return communicator->rehearses();
  }
  /// Throws where there is no such rank to send to or receive from.
  Operation message(const char* name, const Tensor& values, int peer, Where where) const;
  std::unique_ptr<Pending::State> all_reduce(const AllReduce::Values& values, Reduction reduction, Where where);
  /// Reductions that are under way at the same time exchange several rounds of messages: tags keep them apart.
  int next_reduce_tag() { return first_reduce_tag + static_cast<int>(reductions++ % reduce_tags); }
  void all_gather(const void* sent, int bytes, void* received, Where where);
  void all_gather_uneven(const std::string& sent, std::span<const int> sizes, std::span<const int> offsets, char* out,
                         Where where);
};

std::unique_ptr<Pending::State> ProcessGroup::Implementation::all_reduce(const AllReduce::Values& values,
                                                                         Reduction reduction, Where where) {
  require(reducible(values.type), "all_reduce of {}: only f32, bf16, f64, i32 and i64 are reduced",
          name_of(values.type));
  if (communicator->alone() || values.size == 0) return nullptr;
  const Operation operation = AllReduce::operation(values, where);
  communicator->require_intact(operation);
  traffic.all_reduce += operation.bytes;
  if (rehearsed(operation)) return nullptr;
  return std::make_unique<AllReduce>(communicator, values, reduction, next_reduce_tag(), where);
}

ProcessGroup::ProcessGroup(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

ProcessGroup ProcessGroup::world(double timeout, const std::string& machine) {
  require_usage(timeout > 0, "a timeout of {} s: it must be positive", timeout);
  require(mpi_running(), "a process group of all ranks needs MPI to be initialised");
  const auto shared = std::make_shared<SharedState>();
  const MPI_Comm handle = duplicate(MPI_COMM_WORLD, timeout, shared);
  ProcessGroup world(std::make_shared<Implementation>(Implementation{
      std::make_shared<Communicator>(handle, Communicator::Identity{"world", world_number}, timeout, shared)}));
  if (world.size() > 1) {
    shared->watch = Watch::create(world, duplicate(handle, timeout, shared), machine);
    world.implementation_->traffic = {};  // what the watch was made with is no traffic of the job's
  }
  return world;
}

namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

}  // namespace

ProcessGroup ProcessGroup::self(std::string name) {
  return ProcessGroup(std::make_shared<Implementation>(
      Implementation{std::make_shared<Communicator>(Communicator::Identity{std::move(name), world_number}, forever,
                                                    std::make_shared<SharedState>(), std::vector<int>{0}, 0)}));
}

ProcessGroup ProcessGroup::rehearsal(int rank, int ranks) {
  require(rank >= 0 && rank < ranks, "rank {} of {} ranks", rank, ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return ProcessGroup(std::make_shared<Implementation>(
      Implementation{std::make_shared<Communicator>(Communicator::Identity{"world", world_number}, forever,
                                                    std::make_shared<SharedState>(), std::move(members), rank)}));
}

int ProcessGroup::rank() const { return implementation_->communicator->rank(); }
int ProcessGroup::size() const { return implementation_->communicator->size(); }
const std::string& ProcessGroup::name() const { return implementation_->communicator->name(); }
const ProcessGroup::Traffic& ProcessGroup::traffic() const { return implementation_->traffic; }
Ledger& ProcessGroup::ledger() const { return implementation_->communicator->shared()->ledger; }

ProcessGroup ProcessGroup::split(const std::function<int(int)>& colour_of, std::string name, Where where) const {
  Communicator& parent = *implementation_->communicator;
  const int colour = colour_of(parent.rank());
  if (parent.handle() != MPI_COMM_NULL) return split(colour, parent.rank(), std::move(name), where);
  barrier(where);  // as below
  std::vector<int> members;
  int place = 0;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (colour_of(rank) != colour) continue;
    if (rank == parent.rank()) place = static_cast<int>(members.size());
    members.push_back(parent.members()[static_cast<std::size_t>(rank)]);
  }
  return ProcessGroup(std::make_shared<Implementation>(Implementation{std::make_shared<Communicator>(
      parent.child(std::move(name), colour), parent.timeout(), parent.shared(), std::move(members), place)}));
}

ProcessGroup ProcessGroup::split(int colour, int key, std::string name, Where where) const {
  Communicator& parent = *implementation_->communicator;
  require(colour >= 0, "group {}: colour {} must not be negative", name, colour);
  if (parent.handle() == MPI_COMM_NULL) {
    require(parent.alone() || (colour == 0 && key == parent.rank()),
            "group {}: in a rehearsal groups are split by a function of the rank", name);
    return split([](int) { return 0; }, std::move(name), where);
  }
  barrier(where);  // MPI_Comm_split cannot be given a deadline, so see first that every rank is there
  MPI_Comm handle = MPI_COMM_NULL;
  parent.check(MPI_Comm_split(parent.handle(), colour, key, &handle),
               {.name = "split", .bytes = 0, .size = 0, .where = where});
  return ProcessGroup(std::make_shared<Implementation>(Implementation{std::make_shared<Communicator>(
      handle, parent.child(std::move(name), colour), parent.timeout(), parent.shared())}));
}

void ProcessGroup::barrier(Where where) const {
  if (size() == 1) return;
  auto state = implementation_->start({.name = "barrier", .bytes = 0, .size = 0, .where = where});
  if (!state) return;
  state->check(MPI_Ibarrier(implementation_->communicator->handle(), state->request()));
  Pending(std::move(state)).wait();
}

Pending ProcessGroup::all_reduce_async(const Tensor& values, Reduction reduction, Where where) const {
  auto state = implementation_->all_reduce({values.raw(), values.size(), values.dtype()}, reduction, where);
  if (state) state->keep(std::make_shared<Tensor>(values));
  return Pending(std::move(state));
}

void ProcessGroup::all_reduce(std::span<float> values, Reduction reduction, Where where) const {
  Pending(implementation_->all_reduce({values.data(), std::ssize(values), DType::f32}, reduction, where)).wait();
}

void ProcessGroup::all_reduce(std::span<double> values, Reduction reduction, Where where) const {
  Pending(implementation_->all_reduce({values.data(), std::ssize(values), DType::f64}, reduction, where)).wait();
}

void ProcessGroup::all_reduce(std::span<std::int64_t> values, Reduction reduction, Where where) const {
  Pending(implementation_->all_reduce({values.data(), std::ssize(values), DType::i64}, reduction, where)).wait();
}

namespace {

/// Throws where parts, sizes and types of a reduce-scatter or gather do not agree.
void require_parts(const ProcessGroup& group, const char* operation, const Tensor& own, const Tensor& values,
                   std::span<const std::int64_t> extents) {
  require(std::ssize(extents) == group.size(), "{} on group {}: {} extents for {} ranks", operation, group.name(),
          extents.size(), group.size());
  for (const std::int64_t extent : extents) {
    require(extent >= 0, "{} on group {}: an extent of {}", operation, group.name(), extent);
  }
  const std::int64_t part = extents[static_cast<std::size_t>(group.rank())];
  require(values.size() == total(extents), "{} on group {}: extents of {} elements, a tensor of {}", operation,
          group.name(), total(extents), values.size());
  require(own.size() == part, "{} on group {}: rank {} has a part of {} elements, a tensor of {}", operation,
          group.name(), group.rank(), part, own.size());
  require(part == 0 || own.dtype() == values.dtype(), "{} on group {}: a part of {}, a tensor of {}", operation,
          group.name(), name_of(own.dtype()), name_of(values.dtype()));
}

/// Where `rank`'s part begins, in bytes.
std::byte* part_of(const Tensor& values, std::span<const std::int64_t> extents, int rank) {
  const std::int64_t first = total(extents.first(static_cast<std::size_t>(rank)));
  return static_cast<std::byte*>(values.raw()) + first * static_cast<std::int64_t>(size_of(values.dtype()));
}

void copy_unless_there(std::byte* to, const Tensor& from) {
  if (from.size() && to != from.raw()) std::memcpy(to, from.raw(), from.bytes());
}

}  // namespace

Pending ProcessGroup::reduce_scatter_async(const Tensor& values, const Tensor& own,
                                           std::span<const std::int64_t> extents, Where where) const {
  require_parts(*this, "reduce_scatter", own, values, extents);
  if (values.size() == 0) return {};
  require(reducible(values.dtype()), "reduce_scatter of {}: only f32, bf16, f64, i32 and i64 are reduced",
          name_of(values.dtype()));
  const auto& communicator = implementation_->communicator;
  if (communicator->alone()) {
    copy_unless_there(static_cast<std::byte*>(own.raw()), values);
    return {};
  }
  const Operation operation = ReduceScatter::operation(values, where);
  communicator->require_intact(operation);
  implementation_->traffic.reduce_scatter += operation.bytes;
  if (implementation_->rehearsed(operation)) return {};
  ReduceScatter::Values parts{values, own, {extents.begin(), extents.end()}};
  return Pending(
      std::make_unique<ReduceScatter>(communicator, std::move(parts), implementation_->next_reduce_tag(), where));
}

Pending ProcessGroup::all_gather_async(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                                       Where where) const {
  require_parts(*this, "all_gather", own, values, extents);
  if (values.size() == 0) return {};
  std::byte* const own_part = part_of(values, extents, rank());
  const auto width = static_cast<std::int64_t>(size_of(values.dtype()));
  const std::int64_t own_bytes = extents[static_cast<std::size_t>(rank())] * width;
  std::unique_ptr<Pending::State> state;
  if (size() > 1) {
    implementation_->traffic.all_gather += own_bytes;
    state = implementation_->start(
        {.name = "all_gather", .bytes = own_bytes, .size = total(extents) * width, .where = where});
    if (!state) return {};
  }
  copy_unless_there(own_part, own);
  if (!state) return {};
  const MPI_Comm handle = implementation_->communicator->handle();
  state->keep(std::make_shared<Tensor>(values));
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() + size() - step) % size();
    for_pieces(extents[static_cast<std::size_t>(from)] * width, [&](std::int64_t first, int count) {
      state->check(MPI_Irecv(part_of(values, extents, from) + first, count, MPI_BYTE, from, all_gather_tag, handle,
                             state->request()));
      state->expect(count);
    });
  }
  for (int step = 1; step < size(); ++step) {
    for_pieces(own_bytes, [&](std::int64_t first, int count) {
      state->check(MPI_Isend(own_part + first, count, MPI_BYTE, (rank() + step) % size(), all_gather_tag, handle,
                             state->request()));
    });
  }
  return Pending(std::move(state));
}

void ProcessGroup::reduce_scatter(const Tensor& values, const Tensor& own, std::span<const std::int64_t> extents,
                                  Where where) const {
  reduce_scatter_async(values, own, extents, where).wait();
}

void ProcessGroup::all_gather(const Tensor& own, const Tensor& values, std::span<const std::int64_t> extents,
                              Where where) const {
  all_gather_async(own, values, extents, where).wait();
}

Operation ProcessGroup::Implementation::message(const char* name, const Tensor& values, int peer, Where where) const {
  const auto bytes = static_cast<std::int64_t>(values.bytes());
  const Operation operation{.name = name, .bytes = bytes, .size = bytes, .where = where, .peer = peer};
  require(peer >= 0 && peer < communicator->size() && peer != communicator->rank(), "{}: no such rank, or this one",
          communicator->describe(operation));
  return operation;
}

Pending ProcessGroup::send_async(const Tensor& values, int to, Where where) const {
  const Operation operation = implementation_->message("send", values, to, where);
  auto state = implementation_->start(operation);
  implementation_->traffic.send += operation.bytes;
  if (!state) return {};
  state->keep(std::make_shared<Tensor>(values));
  for_pieces_or_none(operation.bytes, [&](std::int64_t first, int count) {
    state->check(MPI_Isend(static_cast<const std::byte*>(values.raw()) + first, count, MPI_BYTE, to, point_to_point_tag,
                           implementation_->communicator->handle(), state->request()));
  });
  return Pending(std::move(state));
}

Pending ProcessGroup::receive_async(const Tensor& values, int from, Where where) const {
  const Operation operation = implementation_->message("receive", values, from, where);
  auto state = implementation_->start(operation);
  if (!state) return {};
  state->keep(std::make_shared<Tensor>(values));
  for_pieces_or_none(operation.bytes, [&](std::int64_t first, int count) {
    state->check(MPI_Irecv(static_cast<std::byte*>(values.raw()) + first, count, MPI_BYTE, from, point_to_point_tag,
                           implementation_->communicator->handle(), state->request()));
    state->expect(count);
  });
  return Pending(std::move(state));
}

void ProcessGroup::broadcast(std::span<std::byte> bytes, int root, Where where) const {
  const Communicator& communicator = *implementation_->communicator;
  require(root >= 0 && root < size(), "broadcast on group {}: root {} of {} ranks", name(), root, size());
  if (communicator.alone() || bytes.empty()) return;
  if (rank() == root) implementation_->traffic.broadcast += std::ssize(bytes);
  auto state = implementation_->start(
      {.name = "broadcast", .bytes = std::ssize(bytes), .size = std::ssize(bytes), .where = where});
  if (!state) return;
  for_pieces(std::ssize(bytes), [&](std::int64_t first, int count) {
    state->check(MPI_Ibcast(bytes.data() + first, count, MPI_BYTE, root, communicator.handle(), state->request()));
  });
  Pending(std::move(state)).wait();
}

std::string ProcessGroup::broadcast(std::string text, int root, Where where) const {
  std::int64_t length = std::ssize(text);
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root, where);
  text.resize(static_cast<std::size_t>(length));
  broadcast(std::as_writable_bytes(std::span(text)), root, where);
  return text;
}

void ProcessGroup::Implementation::all_gather(const void* sent, int bytes, void* received, Where where) {
  traffic.all_gather += bytes;
  auto state =
      start({.name = "all_gather", .bytes = bytes, .size = std::int64_t{bytes} * communicator->size(), .where = where});
  if (!state) return;
  state->check(
      MPI_Iallgather(sent, bytes, MPI_BYTE, received, bytes, MPI_BYTE, communicator->handle(), state->request()));
  Pending(std::move(state)).wait();
}

void ProcessGroup::Implementation::all_gather_uneven(const std::string& sent, std::span<const int> sizes,
                                                     std::span<const int> offsets, char* out, Where where) {
  traffic.all_gather += std::ssize(sent);
  auto state = start({.name = "all_gather",
                      .bytes = std::ssize(sent),
                      .size = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}),
                      .where = where});
  if (!state) return;
  state->check(MPI_Iallgatherv(sent.data(), static_cast<int>(sent.size()), MPI_BYTE, out, sizes.data(), offsets.data(),
                               MPI_BYTE, communicator->handle(), state->request()));
  Pending(std::move(state)).wait();
}

void ProcessGroup::all_gather(std::span<const std::int64_t> sent, std::span<std::int64_t> received, Where where) const {
  require(received.size() == sent.size() * static_cast<std::size_t>(size()),
          "all_gather on group {}: {} numbers of each of {} ranks do not fill {}", name(), sent.size(), size(),
          received.size());
  require(received.size_bytes() <= INT_MAX, "all_gather on group {}: {} B in all are more than 2 GB", name(),
          received.size_bytes());
  if (sent.empty()) return;
  if (size() == 1 || implementation_->communicator->rehearses()) {
    for (std::size_t i = 0; i < received.size(); ++i) received[i] = sent[i % sent.size()];
  }
  if (size() > 1) {
    implementation_->all_gather(sent.data(), static_cast<int>(sent.size_bytes()), received.data(), where);
  }
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& text, Where where) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (ranks == 1) return {text};
  const std::int64_t length = std::ssize(text);
  std::vector<std::int64_t> lengths(ranks);
  all_gather(std::span(&length, 1), lengths, where);
  require(total(lengths) <= INT_MAX, "all_gather on group {}: {} B of text are more than 2 GB", name(), total(lengths));
  const std::vector<int> sizes(lengths.begin(), lengths.end());
  std::vector<int> offsets(ranks);
  std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), 0);
  std::string joined(static_cast<std::size_t>(total(lengths)), '\0');
  implementation_->all_gather_uneven(text, sizes, offsets, joined.data(), where);
  std::vector<std::string> texts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    texts[r] = joined.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(sizes[r]));
  }
  return texts;
}

namespace {

void require_fitting(const ProcessGroup& group, const ProcessGroup::AllToAll& exchange) {
  const auto self = static_cast<std::size_t>(group.rank());
  require(std::ssize(exchange.send_rows) == group.size() && std::ssize(exchange.receive_rows) == group.size(),
          "all_to_all on group {}: {} counts to send and {} to receive for {} ranks", group.name(),
          exchange.send_rows.size(), exchange.receive_rows.size(), group.size());
  require(exchange.row_bytes > 0, "all_to_all on group {}: rows of {} B", group.name(), exchange.row_bytes);
  for (const std::span<const std::int64_t> rows : {exchange.send_rows, exchange.receive_rows}) {
    for (const std::int64_t count : rows) {
      require(count >= 0, "all_to_all on group {}: a count of {} rows", group.name(), count);
    }
  }
  require(exchange.send_rows[self] == exchange.receive_rows[self],
          "all_to_all on group {}: rank {} sends itself {} rows and expects {}", group.name(), self,
          exchange.send_rows[self], exchange.receive_rows[self]);
}

}  // namespace

Pending ProcessGroup::all_to_all_async(const AllToAll& exchange, Where where) const {
  require_fitting(*this, exchange);
  const Communicator& communicator = *implementation_->communicator;
  const auto ranks = static_cast<std::size_t>(size()), self = static_cast<std::size_t>(rank());
  std::vector<std::int64_t> send_at(ranks), receive_at(ranks);  // bytes
  std::exclusive_scan(exchange.send_rows.begin(), exchange.send_rows.end(), send_at.begin(), std::int64_t{0});
  std::exclusive_scan(exchange.receive_rows.begin(), exchange.receive_rows.end(), receive_at.begin(), std::int64_t{0});
  const auto* sent = static_cast<const std::byte*>(exchange.sent);
  auto* received = static_cast<std::byte*>(exchange.received);
  const auto bytes = [&](std::int64_t rows) { return rows * exchange.row_bytes; };

  const std::int64_t own = bytes(exchange.send_rows[self]);
  const std::int64_t away = bytes(total(exchange.send_rows)) - own;
  // One message a pair and direction, receives first. Messages between two ranks keep their order, so exchanges that
  // are started in the same order on all ranks match, however many are under way. A rank with nothing to send or to
  // receive starts one too: all ranks count alike.
  std::unique_ptr<Pending::State> state;
  if (ranks > 1) {
    implementation_->traffic.all_to_all += away;
    state = implementation_->start({.name = "all_to_all", .bytes = away, .size = exchange.row_bytes, .where = where});
    if (!state) return {};
  }
  if (own) std::memcpy(received + bytes(receive_at[self]), sent + bytes(send_at[self]), static_cast<std::size_t>(own));
  if (!state) return {};
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t from = (self + ranks - step) % ranks;
    for_pieces(bytes(exchange.receive_rows[from]), [&](std::int64_t first, int count) {
      state->check(MPI_Irecv(received + bytes(receive_at[from]) + first, count, MPI_BYTE, static_cast<int>(from),
                             all_to_all_tag, communicator.handle(), state->request()));
      state->expect(count);
    });
  }
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks;
    for_pieces(bytes(exchange.send_rows[to]), [&](std::int64_t first, int count) {
      state->check(MPI_Isend(sent + bytes(send_at[to]) + first, count, MPI_BYTE, static_cast<int>(to), all_to_all_tag,
                             communicator.handle(), state->request()));
    });
  }
  return Pending(std::move(state));
}

void ProcessGroup::all_to_all(const AllToAll& exchange, Where where) const { all_to_all_async(exchange, where).wait(); }

void ProcessGroup::all_to_all(const NumbersToAll& exchange, Where where) const {
  require(std::ssize(exchange.sent) == total(exchange.send_counts) &&
              std::ssize(exchange.received) == total(exchange.receive_counts),
          "all_to_all on group {}: {} numbers to send and {} to receive, counts of {} and {}", name(),
          exchange.sent.size(), exchange.received.size(), total(exchange.send_counts), total(exchange.receive_counts));
  if (implementation_->communicator->rehearses()) {
    const auto self = static_cast<std::size_t>(rank());
    const auto own = exchange.sent.subspan(static_cast<std::size_t>(total(exchange.send_counts.first(self))),
                                           static_cast<std::size_t>(exchange.send_counts[self]));
    for (std::size_t i = 0; i < exchange.received.size() && !own.empty(); ++i) {
      exchange.received[i] = own[i % own.size()];
    }
  }
  all_to_all({.sent = exchange.sent.data(),
              .send_rows = exchange.send_counts,
              .received = exchange.received.data(),
              .receive_rows = exchange.receive_counts,
              .row_bytes = sizeof(std::int64_t)},
             where);
}

}  // namespace lyceum
