#include "parallel/comm/process_group.h"

#include <cstring>
#include <numeric>

#include "core/copy.h"
#include "parallel/comm/group_implementation.h"
#include "parallel/comm/make_transport.h"
#include "parallel/comm/watch.h"

namespace lyceum {
namespace {

constexpr std::uint64_t world_number = 1;

/// Returns a duplicate of the communicator `of`. Throws if this takes longer than the timeout.
MPI_Comm duplicate(MPI_Comm of, const std::shared_ptr<SharedState>& shared) {
  // Until the duplicate exists, errors name a placeholder group of one rank.
  const Operation making{
      .name = "creating a communicator", .bytes = 0, .size = 0, .where = std::source_location::current()};
  const auto maker =
      std::make_shared<Communicator>(Communicator::Identity{"world", world_number + 1}, shared, std::vector<int>{0}, 0);
  const auto handle = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  auto state = std::make_unique<Messages>(maker, making);
  state->keep(handle);
  state->check(MPI_Comm_idup(of, handle.get(), state->request()));
  Pending(std::move(state)).wait();
  return *handle;
}

}  // namespace

ProcessGroup::Implementation::Implementation(std::shared_ptr<Communicator> of,
                                             std::shared_ptr<TensorTransport> transport_,
                                             std::unique_ptr<Carrier> carrier_)
    : communicator(std::move(of)), transport(std::move(transport_)), host(communicator), carrier(std::move(carrier_)) {}

bool ProcessGroup::Implementation::enter(const Operation& operation, std::int64_t& counter) const {
  communicator->require_intact(operation);
  counter += operation.bytes;
  if (communicator->rehearses()) communicator->note(operation);
  return !communicator->rehearses();
}

std::unique_ptr<Messages> ProcessGroup::Implementation::start(const Operation& operation, std::int64_t& counter) const {
  return enter(operation, counter) ? std::make_unique<Messages>(communicator, operation) : nullptr;
}

void ProcessGroup::Implementation::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0 || to == from) return;
  if (transport) {
    copy_on_device(transport->stream, to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

ProcessGroup::ProcessGroup(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

ProcessGroup ProcessGroup::create(std::shared_ptr<Communicator> communicator,
                                  std::shared_ptr<TensorTransport> transport, std::unique_ptr<Carrier> carrier) {
  return ProcessGroup(
      std::make_shared<Implementation>(std::move(communicator), std::move(transport), std::move(carrier)));
}

ProcessGroup ProcessGroup::world(double timeout, const std::string& machine) {
  require_usage(timeout > 0, "the timeout must be positive, but is {} s", timeout);
  require(mpi_running(), "a process group of all ranks needs MPI to be initialised");
  const auto shared = std::make_shared<SharedState>();
  shared->timeout = timeout;
  const MPI_Comm handle = duplicate(MPI_COMM_WORLD, shared);
  ProcessGroup world =
      create(std::make_shared<Communicator>(handle, Communicator::Identity{"world", world_number}, shared), {}, {});
  if (world.size() > 1) {
    shared->watch = Watch::create(world, duplicate(handle, shared), machine);
    world.implementation_->traffic = {};  // the watch's own messages do not count
  }
  return world;
}

ProcessGroup ProcessGroup::self(std::string name) {
  return create(std::make_shared<Communicator>(Communicator::Identity{std::move(name), world_number},
                                               std::make_shared<SharedState>(), std::vector<int>{0}, 0),
                {}, {});
}

ProcessGroup ProcessGroup::rehearsal(int rank, int ranks, bool counts_messages) {
  require(rank >= 0 && rank < ranks, "rank {} is not one of {} ranks", rank, ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  auto shared = std::make_shared<SharedState>();
  shared->rehearses_messages = counts_messages;
  return create(std::make_shared<Communicator>(Communicator::Identity{"world", world_number}, std::move(shared),
                                               std::move(members), rank),
                {}, {});
}

ProcessGroup ProcessGroup::on(Stream stream, Transport transport, const NcclOptions& nccl, Where where) const {
  const std::shared_ptr<Communicator>& communicator = implementation_->communicator;
  std::shared_ptr<TensorTransport> by = make_transport(std::move(stream), transport, nccl, *communicator);
  const bool travels = !communicator->alone() && !communicator->rehearses();
  std::unique_ptr<Carrier> carrier = travels ? by->carrier(communicator, where) : nullptr;
  return create(communicator, std::move(by), std::move(carrier));
}

int ProcessGroup::rank() const { return implementation_->communicator->rank(); }
int ProcessGroup::size() const { return implementation_->communicator->size(); }
const std::vector<int>& ProcessGroup::members() const { return implementation_->communicator->members(); }
void ProcessGroup::set_checksums(bool on) const { implementation_->communicator->shared()->checksums = on; }
const std::string& ProcessGroup::name() const { return implementation_->communicator->name(); }
void ProcessGroup::set_timeout(double seconds) const { implementation_->communicator->shared()->timeout = seconds; }
double ProcessGroup::timeout() const { return implementation_->communicator->timeout(); }
const ProcessGroup::Traffic& ProcessGroup::traffic() const { return implementation_->traffic; }
std::int64_t ProcessGroup::sent_messages() const { return implementation_->communicator->shared()->sent_messages; }
Ledger& ProcessGroup::ledger() const { return implementation_->communicator->shared()->ledger; }
Turns& ProcessGroup::turns() const { return implementation_->communicator->shared()->turns; }

ProcessGroup ProcessGroup::split(const std::function<int(int)>& colour_of, std::string name, Where where) const {
  Communicator& parent = *implementation_->communicator;
  const int colour = colour_of(parent.rank());
  if (parent.handle() != MPI_COMM_NULL) return split(colour, parent.rank(), std::move(name), where);
  barrier(where);  // as in the split by MPI below, so that both record the same operations
  std::vector<int> members;
  int own_rank = 0;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (colour_of(rank) != colour) continue;
    if (rank == parent.rank()) own_rank = static_cast<int>(members.size());
    members.push_back(parent.members()[static_cast<std::size_t>(rank)]);
  }
  return create(std::make_shared<Communicator>(parent.child(std::move(name), colour), parent.shared(),
                                               std::move(members), own_rank),
                implementation_->transport, {});
}

ProcessGroup ProcessGroup::split(int colour, int key, std::string name, Where where) const {
  Communicator& parent = *implementation_->communicator;
  require(colour >= 0, "group {}: colour {} must not be negative", name, colour);
  if (parent.handle() == MPI_COMM_NULL) {
    require(parent.alone() || (colour == 0 && key == parent.rank()),
            "group {}: in a rehearsal, split the group by a function of the rank", name);
    return split([](int) { return 0; }, std::move(name), where);
  }
  barrier(where);  // MPI_Comm_split has no timeout, so first make sure that all ranks have arrived
  MPI_Comm handle = MPI_COMM_NULL;
  parent.check(MPI_Comm_split(parent.handle(), colour, key, &handle),
               {.name = "split", .bytes = 0, .size = 0, .where = where});
  const auto child = std::make_shared<Communicator>(handle, parent.child(std::move(name), colour), parent.shared());
  std::unique_ptr<Carrier> carrier;
  if (implementation_->carrier) carrier = implementation_->carrier->split(child, colour, where);
  return create(child, implementation_->transport, std::move(carrier));
}

}  // namespace lyceum
