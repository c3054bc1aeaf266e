#include "parallel/comm/make_transport.h"

#include "parallel/comm/mpi_carrier.h"
#ifdef LYCEUM_CUDA
#include "parallel/comm/cuda/make_transport.h"
#endif

namespace lyceum {
namespace {

/// The transport for host memory; also used in rehearsals.
class HostTransport final : public TensorTransport {
 public:
  using TensorTransport::TensorTransport;
  std::unique_ptr<Carrier> carrier(const std::shared_ptr<Communicator>& communicator, Where) override {
    return std::make_unique<MpiCarrier>(communicator);
  }
};

}  // namespace

std::shared_ptr<TensorTransport> make_transport(Stream stream, Transport transport,
                                                [[maybe_unused]] const NcclOptions& nccl, const Communicator& world) {
  const bool rehearses = std::holds_alternative<RehearsalStream>(stream);
  require(!rehearses || world.rehearses() || world.alone(),
          "the groups of a job that computes cannot use the stream of a rehearsal");
#ifdef LYCEUM_CUDA
  if (const auto* cuda = std::get_if<CudaStream>(&stream)) {
    require_usage(transport != Transport::mpi,
                  "tensors on GPU {} cannot be sent by MPI alone: choose nccl, or staged if ranks share a GPU",
                  cuda->device());
    return transport == Transport::nccl ? make_nccl_transport(*cuda, world.shared(), nccl)
                                        : make_staged_transport(*cuda);
  }
#endif
  require_usage(rehearses || transport == Transport::mpi,
                "tensors in host memory are sent by MPI: nccl and staged apply only to tensors on a GPU");
  return std::make_shared<HostTransport>(std::move(stream));
}

}  // namespace lyceum
