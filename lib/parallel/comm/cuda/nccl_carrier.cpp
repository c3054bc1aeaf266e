#include "parallel/comm/cuda/nccl_carrier.h"

#include <algorithm>
#include <numeric>

#include "parallel/comm/pending_state.h"

namespace lyceum {
namespace {

using Calls = std::function<void(const NcclLane&)>;

/// An operation that is passed to NCCL as soon as its lane is free and, with NcclOrder::serial, it is first in the
/// chain; messages between two ranks are not in the chain. It begins after all work that the compute stream had when
/// the object was made, and after the operation before it in the chain. Once it is passed to NCCL, no step is left for
/// the host. wait() makes the compute stream wait for the operation; test() only checks if the device has completed it.
class NcclOperation final : public Pending::State {
 public:
  /// `calls` makes the NCCL calls in the lane's stream, and owns what must live until the operation was waited for.
  NcclOperation(std::shared_ptr<NcclTransport> transport, std::shared_ptr<NcclLane> lane,
                std::shared_ptr<Communicator> group, const Operation& operation, Calls calls)
      : State(std::move(group), operation),
        transport_(std::move(transport)),
        lane_(std::move(lane)),
        chain_(operation.peer < 0 ? transport_->chain() : nullptr),
        calls_(std::move(calls)),
        done_(std::make_shared<CudaEvent>()) {
    ready_.record(transport_->compute());
    lane_->line_up(this);
    if (chain_) chain_->line_up(this);
    then([transport = transport_, done = done_] { done->hold(transport->compute()); });
  }
  ~NcclOperation() override {
    lane_->leave(this);
    if (chain_) chain_->leave(this);
  }

 private:
  bool step() override {
    transport_->require_intact(communicator(), operation());
    try {
      return pass();
    } catch (...) {
      lane_->leave(this);
      transport_->fail(std::current_exception());
      throw;
    }
  }
  /// Passes the operation to NCCL if it is its turn. True once NCCL has put it into the stream.
  bool pass() {
    if (!lane_->try_connect() || !lane_->first(this) || (chain_ && !chain_->first(this))) return false;
    if (!given_) {
      ready_.hold(lane_->stream());
      if (chain_) chain_->hold(lane_->stream());
      lane_->pass();
      calls_(*lane_);
      given_ = true;
    }
    if (!lane_->enqueued()) return false;
    done_->record(lane_->stream());
    if (chain_) chain_->append(this, done_);
    lane_->fly({done_, noted(), operation()});
    return true;
  }
  bool ended() const override { return done_->reached(); }
  void finish() override {}  // the lane records the end, see NcclLane::oldest_flight()

  std::shared_ptr<NcclTransport> transport_;
  std::shared_ptr<NcclLane> lane_;
  NcclChain* chain_;  // of transport_; null: not in a chain
  Calls calls_;
  CudaEvent ready_;
  std::shared_ptr<CudaEvent> done_;
  bool given_ = false;
};

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t operation_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return ncclSum;
    case Reduction::max: return ncclMax;
    case Reduction::min: return ncclMin;
  }
  return ncclSum;
}

/// Makes the NCCL calls in `calls` as one group, which NCCL runs as one operation.
template <class F>
void grouped(const NcclLane& lane, F&& calls) {
  lane.check(ncclGroupStart(), "ncclGroupStart");
  calls();
  lane.check(ncclGroupEnd(), "ncclGroupEnd");
}

bool even(const std::vector<std::int64_t>& extents) {
  return std::ranges::all_of(extents, [&](std::int64_t extent) { return extent == extents[0]; });
}

std::size_t count_of(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// Collective over `parent`. Returns the size of the largest of the groups that it was split into. `size`: the size of
/// this rank's group.
int largest_size(const Communicator& parent, int size, const Operation& split) {
  struct Largest {
    int size;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  auto largest = std::make_unique<Largest>(Largest{size});
  parent.check(MPI_Iallreduce(MPI_IN_PLACE, &largest->size, 1, MPI_INT, MPI_MAX, parent.handle(), &largest->request),
               split);
  const auto known = [&] {
    int done = 0;
    parent.check(MPI_Test(&largest->request, &done, MPI_STATUS_IGNORE), split);
    return done != 0;
  };
  try {
    wait_until(known, parent, split);
  } catch (...) {
    (void)largest.release();  // leaked: MPI may still write into it
    throw;
  }
  return largest->size;
}

}  // namespace

NcclCarrier::NcclCarrier(std::shared_ptr<NcclTransport> transport, std::shared_ptr<Communicator> group, Where where)
    : transport_(std::move(transport)), group_(std::move(group)) {
  std::vector<int> ranks(static_cast<std::size_t>(group_->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  lane_ = transport_->lane(group_, std::move(ranks), connect_tag);
  wait_until([this] { return lane_->try_connect(); }, *group_,
             {.name = "connecting over NCCL", .bytes = 0, .size = 0, .where = where});
}

NcclCarrier::NcclCarrier(std::shared_ptr<NcclTransport> transport, std::shared_ptr<Communicator> group,
                         std::shared_ptr<NcclLane> lane)
    : transport_(std::move(transport)), group_(std::move(group)), lane_(std::move(lane)) {}

std::unique_ptr<Carrier> NcclCarrier::split(const std::shared_ptr<Communicator>& child, int colour, Where where) {
  const Operation split{.name = "split", .bytes = 0, .size = 0, .where = where};
  transport_->require_intact(*group_, split);
  try {
    if (largest_size(*group_, child->size(), split) == 1) return nullptr;
    std::shared_ptr<NcclLane> lane = split_off(child, colour, split);
    return child->alone() ? nullptr : std::make_unique<NcclCarrier>(transport_, child, std::move(lane));
  } catch (...) {
    group_->mark_broken();
    child->mark_broken();
    group_->shared()->progress.give_up();
    throw;
  }
}

// A rank whose group has size 1 takes part with an NCCL communicator of one rank, which is destroyed at once. The
// alternative, NCCL_SPLIT_NOCOLOR, crashes NCCL 2.28 if the split is aborted.
std::shared_ptr<NcclLane> NcclCarrier::split_off(const std::shared_ptr<Communicator>& child, int colour,
                                                 const Operation& split) {
  const auto idle = [this] {
    group_->shared()->progress.poll();
    return lane_->idle();
  };
  wait_until(idle, *group_, split);
  std::shared_ptr<NcclLane> lane = transport_->lane(lane_, child, colour);
  wait_until([&] { return lane->try_connect(); }, *group_, split);
  return lane;
}

Carrier::Started NcclCarrier::start(std::shared_ptr<NcclLane> lane, const Operation& operation, Calls calls) {
  transport_->require_intact(*group_, operation);
  auto started = std::make_unique<NcclOperation>(transport_, std::move(lane), group_, operation, std::move(calls));
  group_->shared()->progress.poll();  // passes the operation to NCCL if its lane is free
  return started;
}

std::shared_ptr<NcclLane> NcclCarrier::pair(int from, int to) {
  std::shared_ptr<NcclLane>& lane = pairs_[{from, to}];
  if (!lane) lane = transport_->lane(group_, {from, to}, connect_pair_tag);
  return lane;
}

Carrier::Started NcclCarrier::all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) {
  return start(lane_, operation, [values, reduction](const NcclLane& lane) {
    lane.check(ncclAllReduce(values.raw(), values.raw(), count_of(values.size()), type_of(values.dtype()),
                             operation_of(reduction), lane.handle(), lane.stream()),
               "ncclAllReduce");
  });
}

Carrier::Started NcclCarrier::reduce_scatter(const Operation& operation, const Parts& parts) {
  return start(lane_, operation, [parts](const NcclLane& lane) {
    const ncclDataType_t type = type_of(parts.all.dtype());
    if (even(parts.extents)) {
      lane.check(ncclReduceScatter(parts.all.raw(), parts.own.raw(), count_of(parts.extents[0]), type, ncclSum,
                                   lane.handle(), lane.stream()),
                 "ncclReduceScatter");
      return;
    }
    grouped(lane, [&] {
      for (int rank = 0; rank < lane.group().size(); ++rank) {
        const std::int64_t extent = parts.extents[static_cast<std::size_t>(rank)];
        if (extent == 0) continue;
        void* const sum = rank == lane.group().rank() ? parts.own.raw() : nullptr;
        lane.check(
            ncclReduce(parts.begin(rank), sum, count_of(extent), type, ncclSum, rank, lane.handle(), lane.stream()),
            "ncclReduce");
      }
    });
  });
}

Carrier::Started NcclCarrier::all_gather(const Operation& operation, const Parts& parts) {
  return start(lane_, operation, [parts](const NcclLane& lane) {
    if (even(parts.extents)) {
      lane.check(
          ncclAllGather(parts.own.raw(), parts.all.raw(), parts.own.bytes(), ncclUint8, lane.handle(), lane.stream()),
          "ncclAllGather");
      return;
    }
    grouped(lane, [&] {
      for (int rank = 0; rank < lane.group().size(); ++rank) {
        if (parts.bytes(rank) == 0) continue;
        const void* const from = rank == lane.group().rank() ? parts.own.raw() : parts.begin(rank);
        lane.check(ncclBroadcast(from, parts.begin(rank), count_of(parts.bytes(rank)), ncclUint8, rank, lane.handle(),
                                 lane.stream()),
                   "ncclBroadcast");
      }
    });
  });
}

Carrier::Started NcclCarrier::send(const Operation& operation, const Tensor& values) {
  return start(pair(group_->rank(), operation.peer), operation, [values](const NcclLane& lane) {
    if (values.bytes() == 0) return;
    lane.check(ncclSend(values.raw(), values.bytes(), ncclUint8, 1, lane.handle(), lane.stream()), "ncclSend");
  });
}

Carrier::Started NcclCarrier::receive(const Operation& operation, const Tensor& values) {
  return start(pair(operation.peer, group_->rank()), operation, [values](const NcclLane& lane) {
    if (values.bytes() == 0) return;
    lane.check(ncclRecv(values.raw(), values.bytes(), ncclUint8, 0, lane.handle(), lane.stream()), "ncclRecv");
  });
}

namespace {

/// The rows of one tensor in an all-to-all, with copies of the counts.
struct ExchangedRows {
  explicit ExchangedRows(const ProcessGroup::AllToAll& exchange)
      : sent(static_cast<const std::byte*>(exchange.sent)),
        received(static_cast<std::byte*>(exchange.received)),
        send_rows(exchange.send_rows.begin(), exchange.send_rows.end()),
        receive_rows(exchange.receive_rows.begin(), exchange.receive_rows.end()),
        send_at(row_offsets(send_rows, exchange.row_bytes)),
        receive_at(row_offsets(receive_rows, exchange.row_bytes)),
        row_bytes(exchange.row_bytes) {}

  void copy_own(const NcclLane& lane) const {
    const auto self = static_cast<std::size_t>(lane.group().rank());
    if (send_rows[self] == 0) return;
    check(cudaMemcpyAsync(received + receive_at[self], sent + send_at[self], count_of(send_rows[self] * row_bytes),
                          cudaMemcpyDeviceToDevice, lane.stream()),
          "copy of a rank's own rows");
  }
  /// Sends the rows for another rank, and receives its rows.
  void exchange_with(const NcclLane& lane, std::size_t rank) const {
    const auto peer = static_cast<int>(rank);
    if (send_rows[rank]) {
      lane.check(ncclSend(sent + send_at[rank], count_of(send_rows[rank] * row_bytes), ncclUint8, peer, lane.handle(),
                          lane.stream()),
                 "ncclSend");
    }
    if (receive_rows[rank]) {
      lane.check(ncclRecv(received + receive_at[rank], count_of(receive_rows[rank] * row_bytes), ncclUint8, peer,
                          lane.handle(), lane.stream()),
                 "ncclRecv");
    }
  }

  const std::byte* sent;
  std::byte* received;
  std::vector<std::int64_t> send_rows, receive_rows, send_at, receive_at;
  std::int64_t row_bytes;
};

}  // namespace

Carrier::Started NcclCarrier::all_to_all(const Operation& operation,
                                         std::span<const ProcessGroup::AllToAll> exchanges) {
  std::vector<ExchangedRows> tensors(exchanges.begin(), exchanges.end());
  return start(lane_, operation, [tensors = std::move(tensors)](const NcclLane& lane) {
    for (const ExchangedRows& rows : tensors) rows.copy_own(lane);
    const auto self = static_cast<std::size_t>(lane.group().rank()),
               ranks = static_cast<std::size_t>(lane.group().size());
    grouped(lane, [&] {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < tensors.size() && rank != self; ++i) tensors[i].exchange_with(lane, rank);
      }
    });
  });
}

}  // namespace lyceum
