#include "core/allocator.h"
#include "core/cuda_check.h"
#include "core/cuda_graph.h"

namespace lyceum {

namespace {

struct Destroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;

/// Records the stream's work during its lifetime; memory allocated meanwhile belongs to the reserve `memory`.
class Recording {
 public:
  Recording(const CudaStream& stream, std::shared_ptr<Allocator::Reserve>& memory) : stream_(stream) {
    memory = stream.memory().start_reserving();
    // Relaxed mode, since the work may have to allocate memory with cudaMalloc().
    const cudaError_t state = cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed);
    if (state != cudaSuccess) stream.memory().stop_reserving();
    check(state, "cudaStreamBeginCapture");
  }
  ~Recording() {
    if (open_) static_cast<void>(end());
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Graph finish() {
    auto [state, graph] = end();
    check(state, "cudaStreamEndCapture");
    return std::move(graph);
  }

 private:
  std::pair<cudaError_t, Graph> end() {
    open_ = false;
    stream_.memory().stop_reserving();
    cudaGraph_t graph = nullptr;
    const cudaError_t state = cudaStreamEndCapture(stream_.handle(), &graph);
    if (state != cudaSuccess) cudaGetLastError();  // clears it
    return {state, Graph(graph)};
  }

  const CudaStream& stream_;
  bool open_ = true;
};

}  // namespace

CudaGraph::CudaGraph(const CudaStream& stream, const std::function<void()>& work) : stream_(stream) {
  Recording recording(stream, memory_);
  work();
  const Graph graph = recording.finish();
  check(cudaGraphInstantiate(&executable_, graph.get(), 0), "cudaGraphInstantiate");
}

CudaGraph::~CudaGraph() {
  if (executable_) cudaGraphExecDestroy(executable_);
}

void CudaGraph::launch() const {
  check(cudaGraphLaunch(executable_, stream_.handle()), "cudaGraphLaunch");
  stream_.memory().count_replay(*memory_);
}

}  // namespace lyceum
