#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "apps/checkpoint_diff.h"
#include "apps/commands.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_config.h"
#include "config/binding.h"
#include "io/checkpoint/summary.h"
#include "io/text/json.h"
#include "io/text/table.h"
#include "train/run/run_state.h"
#include "train/run/start_tables.h"

namespace lyceum {
namespace {

namespace fs = std::filesystem;

constexpr const char* checkpoint_about =
    R"(  ls DIR            list the checkpoints in a directory or of a run, newest first
  show CKPT         describe a checkpoint, one line per layer
  verify CKPT       read every file and compare its SHA-256; exit code 0, or 3 and what is wrong
  diff A B          compare two checkpoints tensor by tensor; exit code 0 if they are equal bit for bit, else 1

CKPT is a checkpoint (step-00000100/), or a directory of checkpoints or of a run: the checkpoint that LATEST names.)";

std::int64_t parameters(const CheckpointReader& reader) {
  std::int64_t sum = 0;
  for (const auto& entry : reader.tensors()) sum += is_optimizer_state(entry.name) ? 0 : entry.shape.size();
  return sum;
}

std::string age_of(const fs::path& file) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() - fs::last_write_time(file))
          .count();
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::string sound_text(const CheckpointHeader& header) {
  return header.unsound.empty() ? "yes" : "no: " + header.unsound;
}

int list(const fs::path& directory) {
  require_input(fs::is_directory(directory), "{}: no such directory", directory.string());
  const fs::path root = checkpoint_root_in(directory);
  const std::vector<std::string> names = list_checkpoint_directories(root);
  if (names.empty()) {
    print(fmt::format("no checkpoints in {}\n", root.string()));
    return 0;
  }
  Table table({"name", ">step", "mesh", ">tensors", ">parameters", ">size", ">age", "sound", "complete"});
  for (const std::string& name : names) {
    try {
      const CheckpointSummary listed = summarize_checkpoint(root / name);
      table.add({name, fmt::to_string(listed.header.step), listed.header.mesh, fmt::to_string(listed.tensors),
                 human_count(static_cast<double>(listed.parameters)), text_of_bytes(listed.bytes),
                 age_of(root / name / "manifest.json"), sound_text(listed.header),
                 listed.problem.empty() ? "yes" : "no: " + listed.problem});
    } catch (const Error& error) {
      table.add({name, "", "", "", "", "", "", "", std::string("no: ") + error.what()});
    }
  }
  print(fmt::format("{}mesh: {}\n", table.text(), mesh_legend));
  return 0;
}

/// Returns the group of a tensor: "model/layers/3", "model/embed_tokens", "optimizer/exp_avg".
std::string group_of(const std::string& name) {
  const std::size_t parts = name.starts_with("model/layers/") ? 3 : 2;
  std::size_t end = 0;
  for (std::size_t part = 0; part < parts && end != std::string::npos; ++part) end = name.find('/', end + (part > 0));
  return name.substr(0, end);
}

/// True if `a` comes before `b`. Numbers in names are compared as numbers: layers/2 before layers/10.
bool number_before(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size(); ++i, ++j) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::size_t end_a =
          std::find_if_not(a.begin() + static_cast<std::ptrdiff_t>(i), a.end(), is_digit) - a.begin();
      const std::size_t end_b =
          std::find_if_not(b.begin() + static_cast<std::ptrdiff_t>(j), b.end(), is_digit) - b.begin();
      if (end_a - i != end_b - j) return end_a - i < end_b - j;
    }
    if (a[i] != b[j]) return a[i] < b[j];
  }
  return a.size() < b.size();
}

struct Group {
  std::int64_t tensors = 0, elements = 0;
  std::map<std::string, std::int64_t> shapes;
  std::set<std::string> types;
};

/// Formats shapes with their counts, "[853, 512] x126, [512, 853] x63, [512] x2": the most frequent first, at most
/// four.
std::string text_of(const std::map<std::string, std::int64_t>& shapes) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [shape, count] : shapes) sorted.emplace_back(-count, shape);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i == 4) return text + fmt::format(", {} more", sorted.size() - i);
    if (i) text += ", ";
    text += sorted[i].second;
    if (sorted[i].first < -1) text += fmt::format(" x{}", -sorted[i].first);
  }
  return text;
}

/// Formats those members of the trainer's state that are single values: "updates 12, samples 96". The others are used
/// only to resume.
std::string state_text(const std::string& state) {
  std::string text;
  const auto json = parse_json<nlohmann::ordered_json>(state, /*allow_exceptions=*/false);
  if (!json.is_object()) return state;
  for (const auto& [key, value] : json.items()) {
    if (value.is_primitive()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, json_text(value));
  }
  return text;
}

void print_placement(const CheckpointReader& reader) {
  const CheckpointHeader& header = reader.header();
  const std::vector<MixturePlacement> placement = RunState::placement_of(header.trainer_state);
  if (placement.empty()) return;
  const Config config = config_of(reader).config;
  for (const MixturePlacement& layer : placement) {
    const std::int64_t experts = mixture_of(config, layer.id).weighted();
    require_input(layer.ranks.experts() == experts, "{}: places {} experts in layer {}, but its configuration has {}",
                  reader.directory().string(), layer.ranks.experts(), label_of(layer.id), experts);
  }
  for (const std::string& line : placement_lines(config, placement, RunState::load_of(header.trainer_state))) {
    print(fmt::format("{}\n", line));
  }
  print("\n");
}

int show(const CheckpointReader& reader, bool all) {
  const CheckpointHeader& header = reader.header();
  print(fmt::format("checkpoint     {}\nrun            {}\nstep           {}\nmesh           {}\n",
                    reader.directory().string(), header.run_uuid, header.step, header.mesh));
  const bool converted = header.mesh.starts_with("none");  // not written by a mesh, so the legend does not apply
  if (!converted) print(fmt::format("               {}\n", mesh_legend));
  print(fmt::format("size           {}\n", text_of_bytes(reader.bytes())));
  print(fmt::format("sound          {}\n", sound_text(header)));
  if (header.job) print(fmt::format("job            {}\n", text_of(*header.job)));
  if (const std::string digest = reader.tokenizer_sha256(); !digest.empty()) {
    print(fmt::format("tokenizer      {}, SHA-256 {}\n", tokenizer_name, digest));
  }
  print(fmt::format("parameters     {} ({})\ntrainer state  {}\n\n{}\n", parameters(reader),
                    human_count(static_cast<double>(parameters(reader))), state_text(header.trainer_state),
                    header.config));
  print_placement(reader);
  if (all) {
    Table table({"tensor", "type", "shape"});
    for (const auto& entry : reader.tensors()) {
      table.add({entry.name, std::string(name_of(entry.type)), entry.shape.text()});
    }
    print(table.text());
    return 0;
  }
  std::map<std::string, Group, decltype(&number_before)> groups(number_before);
  for (const auto& entry : reader.tensors()) {
    Group& group = groups[group_of(entry.name)];
    ++group.tensors;
    group.elements += entry.shape.size();
    ++group.shapes[entry.shape.text()];
    group.types.emplace(name_of(entry.type));
  }
  Table table({"tensors of", ">number", ">elements", "type", "shapes"});
  for (const auto& [name, group] : groups) {
    table.add({name, fmt::to_string(group.tensors), human_count(static_cast<double>(group.elements)),
               fmt::format("{}", fmt::join(group.types, ", ")), text_of(group.shapes)});
  }
  print(table.text());
  return 0;
}

int verify(const CheckpointReader& reader) {
  const std::string problem = reader.problem();
  require_input(problem.empty(), "{}", problem);
  print(fmt::format("{}: {} tensors in {}: all digests match\n", reader.directory().string(), reader.tensors().size(),
                    text_of_bytes(reader.bytes())));
  return 0;
}

}  // namespace

CommandHelp checkpoint_help() {
  boost::program_options::options_description options;
  options.add_options()("all", "show: one line per tensor; diff: also list equal tensors");
  return describe_command("lyceum checkpoint ls | show | verify | diff …", checkpoint_about, options);
}

int checkpoint_command(const Arguments& arguments) {
  std::vector<std::string> words;
  bool all = false;
  for (const std::string& word : arguments) {
    if (word == "--help" || word == "-h") {
      print(checkpoint_help().text);
      return 0;
    }
    if (word == "--all") {
      all = true;
    } else {
      require_usage(!word.starts_with('-'), "no such option: {}; see --help", word);
      words.push_back(word);
    }
  }
  require_usage(!words.empty(), "expected ls, show, verify or diff; see --help");
  const auto expect = [&](std::size_t paths, bool all_allowed) {
    require_usage(words.size() == paths + 1, "{}: {} expected, {} given", words[0],
                  count_text(static_cast<std::int64_t>(paths), "path"), words.size() - 1);
    require_usage(all_allowed || !all, "{} has no option --all", words[0]);
  };
  const auto open = [&](std::size_t i) { return CheckpointReader(resolve_checkpoint(words[i])); };
  if (words[0] == "ls") return expect(1, false), list(words[1]);
  if (words[0] == "show") return expect(1, true), show(open(1), all);
  if (words[0] == "verify") return expect(1, false), verify(open(1));
  if (words[0] == "diff") return expect(2, true), print_differences(open(1), open(2), all);
  fail(ExitCode::usage, "no such command \"{}\": expected ls, show, verify or diff", words[0]);
}

}  // namespace lyceum
