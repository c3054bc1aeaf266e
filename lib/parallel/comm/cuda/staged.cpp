// Sends GPU tensors by MPI, through copies in pinned host memory.
#include <algorithm>
#include <deque>

#include "core/allocator.h"
#include "core/cuda_event.h"
#include "parallel/comm/chunks.h"
#include "parallel/comm/cuda/make_transport.h"
#include "parallel/comm/mpi_carrier.h"
#include "parallel/comm/pending_state.h"

namespace lyceum {
namespace {

class PinnedSource final : public MemorySource {
 public:
  std::byte* take(std::size_t bytes) override {
    void* block = nullptr;
    const cudaError_t state = cudaHostAlloc(&block, bytes, cudaHostAllocDefault);
    if (state == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error
      return nullptr;
    }
    check(state, "cudaHostAlloc");
    return static_cast<std::byte*>(block);
  }
  void give_back(std::byte* block, std::size_t) override { cudaFreeHost(block); }
  void clear(std::byte* block, std::size_t bytes) override { std::fill_n(block, bytes, std::byte{0}); }
  std::string_view name() const override { return "pinned host memory"; }
};

/// Copies between device memory and pinned host memory. Pinned buffers are reused once the GPU has read them.
class Staging {
 public:
  explicit Staging(const CudaStream& stream) : stream_(stream) {}
  ~Staging() {
    if (!returning_.empty()) cudaStreamSynchronize(stream_.handle());
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Returns an uninitialised tensor in pinned memory.
  Tensor pinned(DType type, const Shape& shape) {
    while (!returning_.empty() && returning_.front().read.reached()) returning_.pop_front();
    return Tensor::empty(*memory_, type, shape, MemoryKind::buffers);
  }
  /// Copies device memory to `host`. Blocks until the copy is complete.
  void fetch(const Tensor& host, const void* device) {
    if (host.size() == 0) return;
    start_fetch(host, device);
    finish_fetches();
  }
  /// Starts to copy device memory to `host`, which is complete after finish_fetches().
  void start_fetch(const Tensor& host, const void* device) {
    if (host.size() == 0) return;
    check(cudaMemcpyAsync(host.raw(), device, host.bytes(), cudaMemcpyDeviceToHost, stream_.handle()),
          "copy to pinned memory");
  }
  void finish_fetches() {
    const CudaEvent there;
    there.record(stream_.handle());
    stream_.wait_until([&] { return there.reached(); });
  }
  /// Copies `host` to device memory, in stream order and without blocking. Keeps `host` alive until it has been read.
  void give_back(void* device, const Tensor& host) {
    if (host.size() == 0) return;
    check(cudaMemcpyAsync(device, host.raw(), host.bytes(), cudaMemcpyHostToDevice, stream_.handle()),
          "copy from pinned memory");
    returning_.push_back({host, CudaEvent()});
    returning_.back().read.record(stream_.handle());
  }

 private:
  struct Returning {
    Tensor host;
    CudaEvent read;
  };
  CudaStream stream_;
  std::shared_ptr<Allocator> memory_ = Allocator::create(std::make_unique<PinnedSource>());
  std::deque<Returning> returning_;  // in stream order
};

/// Runs each operation on pinned copies, over MPI. The results are copied to the device when the operation is waited
/// for. The operation over MPI keeps its buffers alive.
class StagedCarrier final : public Carrier {
 public:
  StagedCarrier(std::shared_ptr<Staging> staging, std::shared_ptr<Communicator> communicator)
      : staging_(std::move(staging)), host_(std::move(communicator)) {}

  Started all_reduce(const Operation& operation, const Tensor& values, Reduction reduction) override {
    const Tensor copy = fetched(values);
    return returning(host_.all_reduce(operation, copy, reduction), values, copy);
  }
  Started reduce_scatter(const Operation& operation, const Parts& parts) override {
    const Parts copy{fetched(parts.all), room_for(parts.own), parts.extents};
    return returning(host_.reduce_scatter(operation, copy), parts.own, copy.own);
  }
  Started all_gather(const Operation& operation, const Parts& parts) override {
    const Parts copy{room_for(parts.all), fetched(parts.own), parts.extents};
    return returning(host_.all_gather(operation, copy), parts.all, copy.all);
  }
  Started send(const Operation& operation, const Tensor& values) override {
    return host_.send(operation, fetched(values));
  }
  Started receive(const Operation& operation, const Tensor& values) override {
    const Tensor copy = room_for(values);
    return returning(host_.receive(operation, copy), values, copy);
  }
  Started all_to_all(const Operation& operation, std::span<const ProcessGroup::AllToAll> exchanges) override {
    std::vector<ProcessGroup::AllToAll> copies(exchanges.begin(), exchanges.end());
    std::vector<Tensor> sent, received;
    for (ProcessGroup::AllToAll& copy : copies) {
      sent.push_back(staging_->pinned(DType::u8, {total(copy.send_rows) * copy.row_bytes}));
      received.push_back(staging_->pinned(DType::u8, {total(copy.receive_rows) * copy.row_bytes}));
      staging_->start_fetch(sent.back(), copy.sent);
      copy.sent = sent.back().raw();
      copy.received = received.back().raw();
    }
    staging_->finish_fetches();
    std::vector<void*> devices;
    for (const ProcessGroup::AllToAll& exchange : exchanges) devices.push_back(exchange.received);
    Started started = host_.all_to_all(operation, copies);
    started->keep(std::make_shared<std::vector<Tensor>>(std::move(sent)));
    started->then([staging = staging_, devices = std::move(devices), received = std::move(received)] {
      for (std::size_t i = 0; i < devices.size(); ++i) staging->give_back(devices[i], received[i]);
    });
    return started;
  }
  std::unique_ptr<Carrier> split(const std::shared_ptr<Communicator>& child, int, Where) override {
    return child->alone() ? nullptr : std::make_unique<StagedCarrier>(staging_, child);
  }

 private:
  /// Returns a pinned tensor of the same type and shape; undefined if `values` is.
  Tensor room_for(const Tensor& values) {
    return values.defined() ? staging_->pinned(values.dtype(), values.shape()) : Tensor();
  }
  Tensor fetched(const Tensor& values) {
    Tensor copy = room_for(values);
    staging_->fetch(copy, values.raw());
    return copy;
  }
  Started returning(Started started, const Tensor& values, const Tensor& copy) {
    started->then([staging = staging_, values, copy] { staging->give_back(values.raw(), copy); });
    return started;
  }

  std::shared_ptr<Staging> staging_;
  MpiCarrier host_;
};

class StagedTransport final : public TensorTransport {
 public:
  explicit StagedTransport(const CudaStream& stream)
      : TensorTransport(stream), staging_(std::make_shared<Staging>(stream)) {}
  std::unique_ptr<Carrier> carrier(const std::shared_ptr<Communicator>& communicator, Where) override {
    return std::make_unique<StagedCarrier>(staging_, communicator);
  }

 private:
  std::shared_ptr<Staging> staging_;
};

}  // namespace

std::shared_ptr<TensorTransport> make_staged_transport(const CudaStream& stream) {
  return std::make_shared<StagedTransport>(stream);
}

}  // namespace lyceum
