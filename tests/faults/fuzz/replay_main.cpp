// Usage: fuzz_replay TARGET [FILE]
// Runs a target on every file of its corpus and on some mutations of each, without a fuzzer. The mutations are the same
// every time, so that each finding can be reproduced.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support.h"

struct Target {
  const char* name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};
#include "fuzz_targets.inc"

/// Sets the limits that fuzz.sh sets.
extern "C" const char* __asan_default_options() { return "hard_rss_limit_mb=2048:max_allocation_size_mb=2048"; }

namespace {

namespace fs = std::filesystem;

constexpr unsigned longest_seconds = 10;
constexpr int all_mutations = 60, most_of_a_file = 20;

/// The input that is being run, for the report if the process dies.
struct Execution {
  std::string input, name;
} now;

void report_death() {
  const char* file = "fuzz-find";
  std::ofstream(file, std::ios::binary) << now.input;
  std::fprintf(stderr, "fuzz_replay: died of %s: this input is now ./%s\n", now.name.c_str(), file);
}

void run(const Target& target, std::string input, std::string name) {
  now = {std::move(input), std::move(name)};
  alarm(longest_seconds);
  // An exact copy, so that the sanitizer detects reads beyond the last byte.
  const std::vector<std::uint8_t> bytes(now.input.begin(), now.input.end());
  try {
    target.run(bytes.data(), bytes.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_replay: %s\n", error.what());
    report_death();
    std::_Exit(1);
  }
  alarm(0);
}

using Random = std::mt19937_64;
std::size_t below(Random& random, std::size_t count) { return count == 0 ? 0 : random() % count; }

/// Returns `text` after one to four random changes: a bit or byte is changed, a part is removed, the text is cut short,
/// a part is repeated, or a part of another file is inserted.
std::string mutated(std::string text, const std::vector<std::string>& corpus, Random& random) {
  for (std::size_t changes = 1 + below(random, 4); changes > 0; --changes) {
    const std::size_t at = below(random, text.size()),
                      length = 1 + below(random, std::min<std::size_t>(64, text.size()));
    switch (below(random, 6)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
        break;
      case 1:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 2: text.erase(at, length); break;
      case 3: text.resize(at); break;
      case 4: text.insert(at, text.substr(at, length)); break;
      default: {
        const std::string& other = corpus[below(random, corpus.size())];
        text.insert(at, other.substr(below(random, other.size()), length));
      }
    }
  }
  return text;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int replay(const Target& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(LYCEUM_CORPUS) / target.name)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> corpus;
  for (const fs::path& file : files) corpus.push_back(bytes_of(file));
  int executions = 0;
  for (std::size_t f = 0; f < files.size(); ++f, ++executions) run(target, corpus[f], files[f].filename());
  const int mutations = std::clamp(all_mutations / std::max(1, static_cast<int>(files.size())), 1, most_of_a_file);
  for (std::size_t f = 0; f < files.size(); ++f) {
    Random random(f);
    for (int m = 0; m < mutations; ++m, ++executions) {
      run(target, mutated(corpus[f], corpus, random), files[f].filename().string() + ", mutation " + std::to_string(m));
    }
  }
  std::printf("%s: %zu files, %d executions\n", target.name, files.size(), executions);
  return files.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span words(argv, static_cast<std::size_t>(argc));
  const auto* const target = std::ranges::find_if(
      all_targets, [&](const Target& known) { return argc > 1 && std::string_view(known.name) == words[1]; });
  if (target == std::end(all_targets)) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET [FILE]\n");
    return 2;
  }
  __sanitizer_set_death_callback(report_death);
  std::signal(SIGALRM, [](int) {
    report_death();
    std::abort();
  });
  if (argc > 2) {
    run(*target, bytes_of(words[2]), words[2]);
    return 0;
  }
  return replay(*target);
}
