#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/range.h"
#include "core/stream.h"
#include "io/data/loader/token_loader.h"
#include "io/run/lock.h"
#include "model/working_type.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/mpi_session.h"
#include "plan/mesh_plan.h"

namespace lyceum {

/// Where a rank runs and what it may use there.
struct RankPlace {
  std::string host, cores;  // "0-3,8"
  int local_rank = 0, threads = 1;
  double memory = 0;  // bytes: its share of what the machine, or the job's limit on it, has
  std::string device;
  std::string processor;  // the model of the GPU, or of the CPU where there is none
};

/// Device, threads and groups of this rank. Addresses of the groups stay valid as long as the setup.
struct RunSetup {
  Stream stream;
  Mesh mesh;
  std::vector<RankPlace> places{};  // of all ranks
  std::string program{};            // that runs: its version and commit
};

/// Checks the resolved configuration against the world (usage Errors, all at once) and the memory of this machine
/// before any is taken. `reading`: what a finished model is read for; none: it is trained.
std::unique_ptr<RunSetup> set_up(const Config& config, const MpiSession& session, std::optional<Reading> reading = {});

/// Collective: keeps other jobs out of config.run.dir; an object on rank 0, null on the others. Throws a usage Error
/// that names who has it.
std::unique_ptr<RunLock> hold_run_directory(const Config& config, const MpiSession& session);
/// Training and validation samples as the configuration names them.
struct RunData {
  std::optional<TokenLoader> train;
  std::vector<TokenLoader> valid;  // of one source each; none where nothing is held out
  std::string tokenizer;           // bytes of data.tokenizer; empty when none is named
  std::int64_t valid_samples() const;
  /// Tokens of the validation file that its samples predict or read, where there is one and all of them count.
  std::optional<Range> valid_tokens() const;
};
/// Throws bad_input Errors for missing or damaged files, a tokenizer that is absent, larger than model.vocab or not the
/// one that made the tokens.
RunData open_data(const Config& config, bool need_train);

/// Throws a bad_input Error unless the tokens of all `prefixes` were made with one tokenizer, the one that has the
/// SHA-256 `digest` and is called `name` where that is not empty. Token files without one pass.
void require_one_tokenizer(std::string name, std::string digest, std::span<const std::string> prefixes);

}  // namespace lyceum
