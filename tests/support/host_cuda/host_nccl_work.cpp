#include "host_nccl_work.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "cuda_bf16.h"
#include "host_stream.h"

namespace host_nccl {

std::size_t width_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
  }
  return 0;
}

namespace {

float value_of(__nv_bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
template <class T>
T value_of(T x) {
  return x;
}
template <class T>
void assign(T& to, T value) {
  to = value;
}
void assign(__nv_bfloat16& to, float value) { to = __float2bfloat16_rn(value); }

template <class T>
void reduce(std::byte* into, const std::byte* other, std::size_t count, ncclRedOp_t operation) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof a);
    std::memcpy(&b, other + i * sizeof(T), sizeof b);
    const auto x = value_of(a), y = value_of(b);
    using Value = decltype(x + y);
    if (operation == ncclSum) {
      assign(a, static_cast<Value>(x + y));
    } else {
      assign(a, static_cast<Value>((operation == ncclMax) == (x > y) ? x : y));
    }
    std::memcpy(into + i * sizeof(T), &a, sizeof a);
  }
}

void reduce(std::byte* into, const std::byte* other, std::size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  switch (type) {
    case ncclInt32: return reduce<std::int32_t>(into, other, count, operation);
    case ncclInt64: return reduce<std::int64_t>(into, other, count, operation);
    case ncclFloat32: return reduce<float>(into, other, count, operation);
    case ncclFloat64: return reduce<double>(into, other, count, operation);
    case ncclBfloat16: return reduce<__nv_bfloat16>(into, other, count, operation);
    case ncclUint8: break;
  }
}

}  // namespace

Work::Work(std::shared_ptr<Ranks> ranks, std::vector<Call> calls) : ranks_(std::move(ranks)), calls_(std::move(calls)) {
  ++ranks_->pending;
  host_cuda::await_others(1);
}

Work::~Work() {
  --ranks_->pending;
  host_cuda::await_others(-1);
}

bool Work::operator()() {
  if (ranks_->aborted) {
    if (started_) new std::vector<Call>(std::move(calls_));  // leaked, since MPI may still write to it
    return true;
  }
  if (!started_) start();
  int arrived = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &arrived, MPI_STATUSES_IGNORE);
  if (!arrived) return false;
  finish();
  return true;
}

void Work::start() {
  started_ = true;
  const int size = static_cast<int>(ranks_->world.size()), self = ranks_->rank;
  for (Call& call : calls_) {
    call.received.resize(ranks_->world.size());
    const bool is_root = call.root < 0 || call.root == self;
    const bool gives = call.kind == Call::Kind::reduce || call.kind == Call::Kind::send ||
                       (call.kind == Call::Kind::broadcast && is_root);
    if (gives) {
      call.own.resize(call.bytes());
      host_cuda::copy(call.own.data(), call.from, call.bytes());
    }
    for (int rank = 0; rank < size; ++rank) {
      if (rank != self) start(call, rank);
    }
  }
}

void Work::start(Call& call, int other) {
  const bool is_root = call.root < 0 || call.root == ranks_->rank;
  const bool other_is_root = call.root < 0 || call.root == other;
  switch (call.kind) {
    case Call::Kind::reduce:
      if (is_root) receive(call, other);
      if (other_is_root) send(call, other);
      break;
    case Call::Kind::broadcast:
      if (is_root) send(call, other);
      if (!is_root && other_is_root) receive(call, other);
      break;
    case Call::Kind::send:
      if (other_is_root) send(call, other);
      break;
    case Call::Kind::receive:
      if (other_is_root) receive(call, other);
      break;
  }
}

void Work::receive(Call& call, int rank) {
  Bytes& into = call.received[static_cast<std::size_t>(rank)];
  into.resize(call.bytes());
  MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE, ranks_->world[static_cast<std::size_t>(rank)],
            ranks_->tag, MPI_COMM_WORLD, &requests_.emplace_back());
}

void Work::send(Call& call, int rank) {
  MPI_Isend(call.own.data(), static_cast<int>(call.own.size()), MPI_BYTE, ranks_->world[static_cast<std::size_t>(rank)],
            ranks_->tag, MPI_COMM_WORLD, &requests_.emplace_back());
}

void Work::finish() {
  for (Call& call : calls_) {
    const bool is_root = call.root < 0 || call.root == ranks_->rank;
    if (call.kind == Call::Kind::reduce && is_root) {
      call.received[static_cast<std::size_t>(ranks_->rank)] = call.own;
      Bytes sum = call.received.back();
      for (std::size_t rank = call.received.size() - 1; rank-- > 0;) {
        reduce(sum.data(), call.received[rank].data(), call.count, call.type, call.operation);
      }
      host_cuda::copy(call.to, sum.data(), sum.size());
    } else if (call.kind == Call::Kind::broadcast && is_root) {
      host_cuda::copy(call.to, call.own.data(), call.own.size());
    } else if (call.kind == Call::Kind::broadcast || call.kind == Call::Kind::receive) {
      const Bytes& bytes = call.received[static_cast<std::size_t>(call.root)];
      host_cuda::copy(call.to, bytes.data(), bytes.size());
    }
  }
}

}  // namespace host_nccl
