#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "core/range.h"
#include "core/stream.h"
#include "io/data/loader/token_loader.h"
#include "io/data/tokens/data_identity.h"
#include "io/run/lock.h"
#include "model/working_type.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/mpi_session.h"
#include "plan/mesh_plan.h"

namespace lyceum {

/// The machine on which a rank runs, and the resources that the rank may use there.
struct RankResources {
  std::string host, cores;  // cores: see CoreSet::text
  int local_rank = 0, threads = 1;
  double memory = 0;      // bytes: its share of the GPU's memory, or else of job_memory()
  std::string device;     // "cpu", "cuda:0 NVIDIA H100 80GB HBM3"; ends in ", shared" if ranks share the GPU
  std::string processor;  // model of the GPU, or of the CPU if the rank has no GPU
  std::string network{};  // devices that NCCL uses between machines, see devices_of_nccl(); empty without NCCL
};

/// The device, threads and process groups of this rank. The addresses of the groups stay valid while the setup exists.
struct RunSetup {
  Stream stream;
  Mesh mesh;
  std::vector<RankResources> resources{};  // [world ranks]
  std::string program{};                   // version and commit of this program; empty until `train` sets it
  int first_stage = 1;                     // the first training stage that set_up() checked
};

/// Collective over the world. Returns the setup of this rank, without `program`. Before memory is allocated, it throws
/// usage Errors if the resolved configuration does not fit the number of ranks (all problems in one Error) or needs
/// more memory than a rank has; rank 0 prints nccl_shortage() to stderr. `reading`: the use of a finished model; empty:
/// the model is trained. `first_stage`: training stages before it are not checked.
std::unique_ptr<RunSetup> set_up(const Config& config, const MpiSession& session, std::optional<Reading> reading = {},
                                 int first_stage = 1);

/// Collective over the world. Locks config.run.dir against other jobs. Returns the lock on rank 0, null on the others.
/// Throws a usage Error that names the owner if another job still has the lock after some seconds (30 in a batch job).
std::unique_ptr<RunLock> lock_run_directory(const Config& config, const MpiSession& session);
/// The training and validation samples that the configuration names.
struct RunData {
  std::optional<TokenLoader> train;
  std::vector<TokenLoader> valid;     // one per source; empty if the run has no validation data
  std::string tokenizer;              // contents of the file data.tokenizer; empty if the key is empty
  std::vector<DataIdentity> files{};  // identities of the token files, if identify() was called
  /// Returns the number of samples of all sources of validation.
  std::int64_t valid_samples() const;
  /// Returns the range of tokens in the validation file that the samples read or predict. Empty unless validation has
  /// exactly one source and all its targets count in the loss.
  std::optional<Range> valid_tokens() const;
};
/// The token sources that are open, and their samples. Training stages share them, so that no file is opened or packed
/// more often than needed.
struct OpenSources {
  std::map<std::string, std::shared_ptr<const TokenSource>> sources{};                            // by prefix
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<const TokenSamples>> samples{};  // and seq_len
  std::map<std::string, std::string> fingerprints{};  // by prefix; see identify()
};
/// Collective over the world. Opens the data of a run, or of one of its stages; before, one rank makes the index of
/// packed samples (open_packing()) for all ranks that can read its file. Throws bad_input Errors if files are missing,
/// damaged or too short, if no target counts in the loss, or if the tokenizer is absent, has more tokens than
/// model.vocab or is not the one of the token files; usage Errors if data.train is needed and empty, or if data.valid
/// has weights. `need_train`: false opens data.train only if validation samples are taken from it. `earlier`: the
/// prefixes of the training data of earlier stages; a source that was used there keeps its order of samples. `open`:
/// sources of other stages of the same run, to which this adds its own.
RunData open_data(const Config& config, const RunSetup& setup, bool need_train, std::span<const std::string> earlier,
                  OpenSources& open);
RunData open_data(const Config& config, const RunSetup& setup, bool need_train);

/// True if two stages with these configurations read the same samples in the same order.
bool same_samples(const Config& one, const Config& other);
/// Collective. Opens the data of the stages from `first` on that are not open yet, for training. `data`: one element
/// per stage. Stages before `first` need no data. Throws as open_data() does.
void open_data_of_stages(const Config& config, const RunSetup& setup, int first, std::vector<RunData>& data,
                         OpenSources& open);
/// Collective. Sets RunData::files and the fingerprints of the sources of data.train, as rank 0 reads them. `config`:
/// that of the stage. Uses and extends open.fingerprints.
void identify(RunData& data, const DataConfig& config, const ProcessGroup& world, OpenSources& open);

/// Throws a bad_input Error unless the token files of all `prefixes` were made with the same tokenizer. If `digest` is
/// not empty, that must be the tokenizer with this SHA-256; messages call it `name`. Token files that do not name a
/// tokenizer are accepted.
void require_one_tokenizer(std::string name, std::string digest, std::span<const std::string> prefixes);

}  // namespace lyceum
