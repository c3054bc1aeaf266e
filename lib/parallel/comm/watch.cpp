#include "parallel/comm/watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <new>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/round_up.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/host_name.h"
#include "parallel/comm/process_state.h"
#include "parallel/comm/shared_task.h"
#include "parallel/comm/verdict.h"

namespace lyceum {
namespace {

constexpr int question_tag = 0, answer_tag = 1, found_tag = 2;
/// In seconds: the duration of a wait after which it answers requests; the interval between two checks for requests;
/// the time limits for answers to arrive and for notifications to be sent; the time after which a rank that determines
/// the cause is considered stuck.
constexpr double patience = 1, pause_between = 0.1, answer_time = 3, leave_time = 0.5, stuck_time = 15;
static_assert(std::is_trivially_copyable_v<LedgerPage>);

char state_of(const LedgerPage& page) {
  return page.process_space == process_space() ? process_state(page.process) : '?';
}

void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace

/// The memory that the ranks of a machine share. All zero is a valid initial state.
struct alignas(64) Watch::Segment {
  SharedTask finding;              // why a wait lasts too long
  std::atomic<int> last_answered;  // 1 + the rank that this machine has answered last
  /// The ledger page of a neighbour; the pages are stored behind this object.
  LedgerPage* page(std::size_t neighbour) { return reinterpret_cast<LedgerPage*>(this + 1) + neighbour; }
};

std::shared_ptr<Watch> Watch::create(const ProcessGroup& world, MPI_Comm questions, const std::string& machine) {
  const std::shared_ptr<Watch> watch(new Watch(world, questions, world.all_gather(host_name())));
  watch->share_pages(world, machine.empty() ? watch->hosts_[static_cast<std::size_t>(watch->rank_)] : machine);
  return watch;
}

Watch::Watch(const ProcessGroup& world, MPI_Comm questions, std::vector<std::string> hosts)
    : rank_(world.rank()), ledger_(world.ledger()), questions_(questions), hosts_(std::move(hosts)) {}

Watch::~Watch() {
  if (used_ || std::uncaught_exceptions() > 0 || !mpi_running()) return;
  MPI_Comm_free(&questions_);
}

namespace {

/// Maps shared memory of `bytes` bytes that other processes can open by `name` until it is unlinked. `create`: creates
/// it, filled with zeros. Returns null on failure.
std::shared_ptr<void> shared_memory(const std::string& name, std::size_t bytes, bool create) {
  const int file = shm_open(name.c_str(), O_RDWR | (create ? O_CREAT | O_EXCL : 0), S_IRUSR | S_IWUSR);
  if (file < 0) return nullptr;
  const auto length = static_cast<off_t>(bytes);
  // Reserve the memory, so that a full /dev/shm is detected here and not by SIGBUS at the first write.
  const bool there = !create || (ftruncate(file, length) == 0 && posix_fallocate(file, 0, length) == 0);
  void* memory = there ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (memory == MAP_FAILED) {
    if (create) shm_unlink(name.c_str());
    return nullptr;
  }
  return {memory, [bytes](void* mapped) { munmap(mapped, bytes); }};
}

}  // namespace

void Watch::share_pages(const ProcessGroup& world, const std::string& machine) {
  const std::vector<std::string> machines = world.all_gather(machine);
  std::map<std::string, int> first;
  for (int rank = 0; rank < world.size(); ++rank) {
    machine_of_.push_back(first.try_emplace(machines[static_cast<std::size_t>(rank)], rank).first->second);
  }
  machine_ = machine_of_[static_cast<std::size_t>(rank_)];
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!elsewhere(rank)) neighbours_.push_back(rank);
  }
  const std::size_t bytes = sizeof(Segment) + neighbours_.size() * sizeof(LedgerPage);
  const std::string own = "/lyceum-" + std::to_string(getpid()) + "-" +
                          std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
  std::shared_ptr<void> memory;
  if (machine_ == rank_) memory = shared_memory(own, bytes, true);
  const std::vector<std::string> names = world.all_gather(memory ? own : "");
  const std::string& name = names[static_cast<std::size_t>(machine_)];
  if (machine_ != rank_ && !name.empty()) memory = shared_memory(name, bytes, false);
  // A rank that failed to map the memory is treated as a separate machine by all others.
  const std::vector<std::string> shares = world.all_gather(memory ? "yes" : "");
  if (machine_ == rank_ && memory) shm_unlink(own.c_str());
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (shares[r].empty()) machine_of_[r] = rank;
  }
  if (!memory) {  // treated as a separate machine, with its page in private memory
    machine_ = rank_;
    neighbours_ = {rank_};
    memory = {std::aligned_alloc(alignof(Segment), sizeof(Segment) + round_up<std::size_t>(sizeof(LedgerPage), 64)),
              std::free};
    require(memory != nullptr, "out of memory for the ledger of operations");
    std::memset(memory.get(), 0, sizeof(Segment) + sizeof(LedgerPage));
  }
  segment_ = std::shared_ptr<Segment>(memory, static_cast<Segment*>(memory.get()));
  const auto index = static_cast<std::size_t>(std::ranges::find(neighbours_, rank_) - neighbours_.begin());
  auto* page = new (segment_->page(index)) LedgerPage;
  ledger_.move_to(std::shared_ptr<LedgerPage>(memory, page), rank_);
}

std::vector<LedgerPage> Watch::local_pages() const {
  std::vector<LedgerPage> pages;
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    LedgerPage page = *segment_->page(i);
    if (page.process == 0) continue;  // never written: a rank that does not share this memory
    page.copied = monotonic_seconds();
    page.state = state_of(page);
    pages.push_back(page);
  }
  return pages;
}

void Watch::serve(double waited) {
  if (waited < patience) return;
  const double now = monotonic_seconds();
  if (now - served_ < pause_between) return;
  served_ = now;
  answer();
}

void Watch::answer() {
  int asked = 0;
  MPI_Status status;
  while (MPI_Iprobe(MPI_ANY_SOURCE, question_tag, questions_, &asked, &status) == MPI_SUCCESS && asked) {
    const int asker = status.MPI_SOURCE;
    if (MPI_Recv(nullptr, 0, MPI_BYTE, asker, question_tag, questions_, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    used_ = true;
    asked_by_ = asked_by_ < 0 ? asker : std::min(asked_by_, asker);
    const bool answered_by_neighbour = segment_->last_answered.exchange(asker + 1) == asker + 1;
    if (answered_by_neighbour) continue;
    const auto pages = std::make_shared<std::vector<LedgerPage>>(local_pages());
    MPI_Request request = MPI_REQUEST_NULL;
    answers_.push_back(pages);
    MPI_Isend(pages->data(), static_cast<int>(pages->size() * sizeof(LedgerPage)), MPI_BYTE, asker, answer_tag,
              questions_, &request);
  }
}

void Watch::ask() const {
  for (std::size_t rank = 0; rank < machine_of_.size(); ++rank) {
    if (!elsewhere(static_cast<int>(rank))) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(rank), question_tag, questions_, &request);
  }
}

void Watch::collect(std::vector<LedgerPage>& pages) const {
  int there = 0, bytes = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, answer_tag, questions_, &there, &status) != MPI_SUCCESS || !there) return;
  if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS) return;
  std::vector<LedgerPage> received(static_cast<std::size_t>(bytes) / sizeof(LedgerPage));
  if (MPI_Recv(received.data(), bytes, MPI_BYTE, status.MPI_SOURCE, answer_tag, questions_, MPI_STATUS_IGNORE) !=
      MPI_SUCCESS) {
    return;
  }
  for (const LedgerPage& page : received) pages.at(static_cast<std::size_t>(page.rank)) = page;
}

bool Watch::notified() const {
  int there = 0;
  return MPI_Iprobe(MPI_ANY_SOURCE, found_tag, questions_, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS || there != 0;
}

/// Notifies the ranks of other machines. If a message is lost, its receiver only waits longer; MpiSession::report()
/// still keeps it from printing a second report.
void Watch::notify() const {
  std::vector<MPI_Request> requests;
  for (std::size_t rank = 0; rank < machine_of_.size(); ++rank) {
    if (!elsewhere(static_cast<int>(rank))) continue;
    MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(rank), found_tag, questions_,
              &requests.emplace_back(MPI_REQUEST_NULL));
  }
  const double begin = monotonic_seconds();
  for (int left = 0; !left && monotonic_seconds() - begin < leave_time; wait_a_little()) {
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &left, MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      return;
    }
  }
}

bool Watch::other_machine_found(bool asked_too) {
  answer();
  if (notified()) return true;
  if (asked_by_ < 0 || (asked_too && asked_by_ > rank_)) return false;
  for (const double begin = monotonic_seconds(); monotonic_seconds() - begin < stuck_time; wait_a_little()) {
    answer();
    if (notified()) return true;
  }
  asked_by_ = -1;  // the rank that asked has ended or cannot be reached
  return false;
}

std::optional<std::string> Watch::search() {
  std::vector<LedgerPage> pages(machine_of_.size());
  const std::set<int> machines(machine_of_.begin(), machine_of_.end());
  if (machines.size() > 1) {
    // Waits usually time out on all machines at the same time, but one machine is enough to ask all others. The first
    // machine starts at once, and after each further pause the next 1, 2, 4, … machines.
    const auto index = static_cast<std::uint64_t>(std::distance(machines.begin(), machines.find(machine_)));
    const double turn = monotonic_seconds() + pause_between * static_cast<double>(std::bit_width(index));
    do {
      if (other_machine_found(false)) return std::nullopt;
      wait_a_little();
    } while (monotonic_seconds() < turn);
    ask();
    const auto complete = [&] {
      return std::ranges::all_of(machines, [&](int machine) {
        return machine == machine_ || pages[static_cast<std::size_t>(machine)].rank >= 0;
      });
    };
    const double begin = monotonic_seconds();
    do {
      if (other_machine_found(true)) return std::nullopt;
      collect(pages);
      wait_a_little();
    } while (!complete() && monotonic_seconds() - begin < answer_time);
    if (other_machine_found(true)) return std::nullopt;
    notify();
  }
  for (const LedgerPage& page : local_pages()) pages[static_cast<std::size_t>(page.rank)] = page;
  return verdict(pages, hosts_, rank_);
}

Watch::Finding Watch::find_cause() {
  used_ = true;
  SharedTask& finding = segment_->finding;
  while (!finding.take(stuck_time)) {
    if (finding.done()) return {.found_by_other = true, .finder = finding.process()};
    answer();
    wait_a_little();
  }
  const std::optional<std::string> reason = search();
  if (!finding.finish()) return {.found_by_other = true, .finder = finding.process()};
  if (!reason) return {.found_by_other = true};
  return {.reason = *reason};
}

}  // namespace lyceum
