#include "apps/routing_model.h"

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "apps/written_files.h"
#include "core/error.h"
#include "io/data/tokens/token_formats.h"
#include "io/files/atomic_file.h"
#include "io/report/domains_page.h"
#include "io/report/flow_page.h"
#include "io/routing/activation_flow.h"
#include "io/routing/domains.h"
#include "train/eval/domain_routing.h"
#include "train/eval/evaluator.h"
#include "train/eval/flow_collector.h"

namespace lyceum {

namespace po = boost::program_options;

namespace {

struct ModelRequest {
  std::string checkpoint;
  std::vector<std::string> data;
  std::int64_t batches = 0;
  std::filesystem::path h5, html;
  bool json = false;
  Arguments rest{};  // arguments of the configuration
};

/// Throws a usage Error for a file that cannot be written, before the model runs. An existing file will be replaced, as
/// by other commands.
void require_writable(const char* option, const std::filesystem::path& file) {
  if (file.empty()) return;
  require_usage(!std::filesystem::is_directory(file), "{} {}: is a folder; name a file", option, file.string());
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  require_usage(std::filesystem::is_directory(folder), "{} {}: no such folder: {}", option, file.string(),
                folder.string());
  require_usage(::access(folder.c_str(), W_OK | X_OK) == 0, "{} {}: cannot write to the folder {}", option,
                file.string(), folder.string());
}

/// Returns nothing if only help was requested.
std::optional<ModelRequest> request_of(const MpiSession& session, const Arguments& arguments) {
  po::options_description options = routing_model_options();
  options.add_options()("html", po::value<std::string>())("json", "");
  const ParsedOptions parsed = parse_options(options, arguments);
  if (parsed.help) {
    if (session.rank() == 0) print(routing_help().text);
    return {};
  }
  const auto text = [&](const char* name) {
    return parsed.values.count(name) ? parsed.values[name].as<std::string>() : "";
  };
  ModelRequest request{.checkpoint = text("checkpoint"),
                       .data = {},
                       .batches = parsed.values["batches"].as<std::int64_t>(),
                       .h5 = text("h5"),
                       .html = text("html"),
                       .json = parsed.values.count("json") > 0,
                       .rest = parsed.rest};
  if (parsed.values.count("data")) request.data = parsed.values["data"].as<std::vector<std::string>>();
  require_usage(request.batches >= 0, "--batches = {}: must be 0 (all of the data) or more", request.batches);
  std::vector<std::filesystem::path> read = configuration_files(parsed.rest);
  for (const std::string& text : request.data) {  // PREFIX, or NAME=PREFIX
    for (const std::string& prefix : {text, text.substr(text.find('=') + 1)}) {
      std::ranges::move(files_of_tokens(prefix), std::back_inserter(read));
    }
  }
  require_harmless(std::array{WrittenFile{"--h5", request.h5}, WrittenFile{"--html", request.html}}, read);
  require_writable("--h5", request.h5);
  require_writable("--html", request.html);
  return request;
}

/// Reads "NAME=PREFIX" texts. Throws a usage Error if a name is repeated.
std::vector<DomainRouting::DataSet> data_sets_of(const std::vector<std::string>& texts) {
  require_usage(!texts.empty(), "domains needs --data NAME=PREFIX for each data set");
  std::vector<DomainRouting::DataSet> sets;
  for (const std::string& text : texts) {
    const std::size_t sign = text.find('=');
    require_usage(sign != std::string::npos && sign > 0 && sign + 1 < text.size(),
                  "--data {}: give a name and a prefix of {} files, such as --data code=data/code", text,
                  token_endings());
    DomainRouting::DataSet set{.name = text.substr(0, sign), .prefix = text.substr(sign + 1)};
    require_usage(std::ranges::find(sets, set.name, &DomainRouting::DataSet::name) == sets.end(),
                  "--data {}: the name {} occurs twice", text, set.name);
    sets.push_back(std::move(set));
  }
  return sets;
}

/// Collective. Returns a loader of all samples of a prefix. The data must have been made with the model's tokenizer.
TokenLoader loader_of(Config config, const RunSetup& setup, const std::string& prefix) {
  config.data.valid = prefix;
  RunData data = open_data(config, setup, false);
  require_usage(data.valid.size() == 1, "--data {}: give a single prefix", prefix);
  return std::move(data.valid.front());
}

/// Returns the configuration with the original batch.global, so that the number of samples does not depend on the
/// number of ranks.
Config counted_config(const CheckpointRun& run) {
  Config config = run.config;
  config.batch.global = run.global_batch;
  return config;
}

/// Writes the requested files and prints the results. Call it on rank 0.
template <class WriteH5, class Page>
void write_results(const ModelRequest& request, const std::string& text, WriteH5 write_h5, Page page) {
  print(text);  // printed first, so that the results are not lost if a file cannot be written
  if (!request.h5.empty()) write_h5(request.h5);
  if (!request.html.empty()) replace_file(request.html, page());
  if (request.json) return;
  for (const std::filesystem::path& file : {request.h5, request.html}) {
    if (!file.empty()) print(fmt::format("\nwrote {}", file.string()));
  }
  if (!request.h5.empty() || !request.html.empty()) print("\n");
}

}  // namespace

po::options_description routing_model_options() {
  po::options_description list;
  auto add = list.add_options();
  add("checkpoint", po::value<std::string>()->value_name("DIR"),
      "domains, flow: a checkpoint or the directory of a run");
  add("data", po::value<std::vector<std::string>>()->value_name("[NAME=]PREFIX"),
      "domains: name and token files of a data set, given for each; flow: the token files");
  add("batches", po::value<std::int64_t>()->value_name("N")->default_value(0),
      "domains, flow: batches of batch.global sequences to read of each data set, evenly spread; 0: all");
  add("h5", po::value<std::string>()->value_name("OUT"), "domains, flow: also write every number to this HDF5 file");
  return list;
}

int routing_domains(const MpiSession& session, const Arguments& arguments) {
  const std::optional<ModelRequest> request = request_of(session, arguments);
  if (!request) return 0;
  const std::optional<CheckpointRun> run = configure_reader(session, request->checkpoint, request->rest);
  if (!run) return 0;
  std::vector<DomainRouting::DataSet> sets = data_sets_of(request->data);
  DomainRouting domains{.checkpoint = run->reader.directory().string(),
                        .step = run->reader.header().step,
                        .routers = domain_routers(run->config)};
  require_usage(!domains.routers.empty(), "{}: this model has no experts to route to", domains.checkpoint);
  const auto setup = set_up(run->config, session, Reading::evaluate);
  std::vector<TokenLoader> loaders;
  for (const DomainRouting::DataSet& set : sets) loaders.push_back(loader_of(run->config, *setup, set.prefix));
  StagedModel model = weights_of(*run, *setup);
  const Config counted = counted_config(*run);
  for (std::size_t d = 0; d < sets.size(); ++d) {
    add_domain(domains, std::move(sets[d]), evaluate(model, *setup, counted, loaders[d], request->batches));
  }
  if (session.rank() != 0) return 0;
  write_results(
      *request, request->json ? domain_json(domains) : domain_text(domains),
      [&](const std::filesystem::path& file) { write_domains(file, domains); }, [&] { return domains_page(domains); });
  return 0;
}

int routing_flow(const MpiSession& session, const Arguments& arguments) {
  const std::optional<ModelRequest> request = request_of(session, arguments);
  if (!request) return 0;
  const std::optional<CheckpointRun> run = configure_reader(session, request->checkpoint, request->rest);
  if (!run) return 0;
  require_usage(request->data.size() == 1, "flow needs one --data PREFIX");
  const auto setup = set_up(run->config, session, Reading::evaluate);
  const TokenLoader loader = loader_of(run->config, *setup, request->data.front());
  StagedModel model = weights_of(*run, *setup);
  FlowCollector collector(*setup, run->config);
  const Evaluation evaluation =
      evaluate(model, *setup, counted_config(*run), loader, request->batches, {.observer = &collector.observer()});
  const ActivationFlow flow{.checkpoint = run->reader.directory().string(),
                            .data = request->data.front(),
                            .step = run->reader.header().step,
                            .tokens = evaluation.positions,
                            .seq_len = run->config.batch.seq_len,
                            .hidden = run->config.model.hidden,
                            .loss = evaluation.loss,
                            .values = collector.values(evaluation)};
  if (session.rank() != 0) return 0;
  write_results(
      *request, request->json ? flow_json(flow) : flow_text(flow),
      [&](const std::filesystem::path& file) { write_flow(file, flow); }, [&] { return flow_page(flow); });
  return 0;
}

}  // namespace lyceum
