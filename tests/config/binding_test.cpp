#include "config/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "config/check.h"
#include "config/keys.h"
#include "core/error.h"
#include "io/text/nearest_word.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Arguments = std::vector<std::string>;

const std::filesystem::path source_dir = LYCEUM_SOURCE_DIR;

LoadedConfig load(const Arguments& arguments) { return load_config(arguments); }

/// Returns the message of the usage Error that these arguments cause.
std::string mistake(const Arguments& arguments) {
  try {
    load(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file);
  EXPECT_TRUE(stream) << file;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

class ConfigFile : public testing::Test {
 protected:
  std::string write(const std::string& text) const {
    std::ofstream(file_, std::ios::binary) << text;
    return file_;
  }
  TemporaryDirectory directory_;
  std::string file_ = directory_.path() / "x.ini";
};

TEST_F(ConfigFile, command_line_wins_over_file_wins_over_default) {
  write("[run]\nsteps = 20\nseed = 7\n");
  const LoadedConfig loaded = load({"--run.steps=30", "--config", file_});
  EXPECT_EQ(loaded.config.run.steps, 30);
  EXPECT_EQ(loaded.config.run.seed, 7u);
  EXPECT_EQ(loaded.config.run.log_every, RunConfig{}.log_every);
  EXPECT_EQ(loaded.origin.at("run.steps").file, "");
  EXPECT_EQ(loaded.origin.at("run.seed").file, file_);
  EXPECT_EQ(loaded.origin.at("run.seed").line, 3);
  EXPECT_EQ(loaded.origin.size(), 2u);
}

TEST_F(ConfigFile, is_read_with_comments_spaces_and_foreign_line_ends) {
  write(
      "run.steps = 9\r\n; note\n[ moe ]  # section\nexpert_sizes = 6912, 768 ,1 # widths\n\n  top_k=2;3\n"
      "[data]\n\ttrain = a;b#c\t; why\nvalid =\n[moe]\nexperts=3");
  const std::string message = mistake({"--config", file_});
  EXPECT_THAT(message, AllOf(HasSubstr("moe.top_k = 2;3"), HasSubstr("line 6"), Not(HasSubstr("\n"))));
  write(
      "run.steps = 9\r\n; note\n[ moe ]  # section\nexpert_sizes = 6912, 768 ,1 # widths\n\n  top_k=2\n"
      "[data]\n\ttrain = a;b#c\t; why\nvalid =\n[moe]\nexperts=3");
  const Config config = load({"--config=" + file_}).config;
  EXPECT_EQ(config.run.steps, 9);
  EXPECT_THAT(config.moe.expert_sizes, ElementsAre(6912, 768, 1));
  EXPECT_EQ(config.moe.top_k, 2);
  EXPECT_EQ(config.moe.experts, 3);
  EXPECT_EQ(config.data.train, "a;b#c");
  EXPECT_EQ(config.data.valid, "");
}

TEST_F(ConfigFile, unknown_keys_are_reported_with_the_nearest_one_and_their_line) {
  write("[batch]\n\ngobal = 3\n");
  EXPECT_EQ(mistake({"--config", file_}),
            "unknown key 'batch.gobal' in " + file_ + " line 3: did you mean batch.global?");
}

TEST_F(ConfigFile, a_key_given_twice_is_a_mistake) {
  write("[run]\nsteps = 3\n[batch]\n[run]\nsteps = 3\n");
  EXPECT_EQ(mistake({"--config", file_}), "run.steps is given twice in " + file_ + ": lines 2 and 5");
}

TEST_F(ConfigFile, lines_of_another_form_are_mistakes) {
  write("[run]\nsteps 3\n= 4\n[oops\n");
  EXPECT_THAT(mistake({"--config", file_}),
              AllOf(StartsWith("3 mistakes"), HasSubstr("'steps 3' in " + file_ + " line 2: expected"),
                    HasSubstr("line 3: expected"), HasSubstr("'[oops' in")));
  write(std::string("\x89HDF\0\0\nabc\n", 11));
  EXPECT_THAT(mistake({"--config", file_}), AllOf(HasSubstr("not a text file"), Not(HasSubstr("abc"))));
}

TEST_F(ConfigFile, may_begin_with_a_byte_order_mark) {
  write("\xEF\xBB\xBF[run]\r\nsteps = 3\r\n");
  EXPECT_EQ(load({"--config", file_}).config.run.steps, 3);
  write("\xEF\xBB\xBFrun.steps = 4\n");
  EXPECT_EQ(load({"--config", file_}).config.run.steps, 4);
}

TEST_F(ConfigFile, long_ones_are_reported_briefly) {
  const std::string key(500000, 'k');
  const auto brief = [&](const std::string& text) {
    write(text);
    const std::string message = mistake({"--config", file_});
    EXPECT_LT(message.size(), 4000u);
    return message;
  };
  EXPECT_THAT(brief(key + " = 1\n"), AllOf(HasSubstr("unknown key 'kkkk"), HasSubstr("… (500000 bytes)' in ")));
  EXPECT_THAT(brief(key), HasSubstr("line 1: expected"));
  EXPECT_THAT(brief("run.steps = " + key), HasSubstr("is not an integer"));
  EXPECT_THAT(brief("run.dir = " + key), HasSubstr("must have at most 4095 bytes"));
  EXPECT_THAT(brief(std::string(17 << 20, 'k')), HasSubstr("has more than 16777216 bytes"));
  std::string many = "run.steps = many\n";
  for (int i = 0; i < 20000; ++i) many += "a" + std::to_string(i) + "=\n";
  EXPECT_THAT(brief(many),
              AllOf(HasSubstr("20001 mistakes"), HasSubstr("run.steps = many"), HasSubstr("… and 19981 more")));
}

TEST_F(ConfigFile, that_cannot_be_read_is_a_mistake) {
  EXPECT_THAT(mistake({"--config", file_}), HasSubstr("cannot read the file '" + file_ + "'"));
  EXPECT_THAT(mistake({"--config", directory_.path()}), HasSubstr("cannot read"));
  EXPECT_THAT(mistake({"--config"}), HasSubstr("cannot read"));
  write("");
  EXPECT_THAT(mistake({"--config", file_, "--config", file_}), HasSubstr("more than once"));
  EXPECT_THAT(load({"--config", file_}).origin, IsEmpty());
}

TEST_F(ConfigFile, all_mistakes_are_reported_at_once) {
  write("[run]\nsteps = many\ndevice = gpu\n[modle]\nlayers = 3\nwhat\n");
  EXPECT_THAT(
      mistake({"--config", file_, "--optim.lr", "-1", "--optim.beta9=0", "--batch.global"}),
      AllOf(StartsWith("7 mistakes"), HasSubstr("run.steps = many in " + file_ + " line 2: 'many' is not an "),
            HasSubstr("run.device = gpu in " + file_ + " line 3: must be one of auto, cpu, cuda"),
            HasSubstr("unknown key 'modle.layers' in " + file_ + " line 5: did you mean model.layers?"),
            HasSubstr("line 6: expected"), HasSubstr("optim.lr = -1 on the command line: must be in [0, 1e+30]"),
            HasSubstr("'optim.beta9' on the command line: did you mean optim.beta"),
            HasSubstr("batch.global =  on the command line: a value is missing")));
}

TEST(ConfigCommandLine, takes_values_in_both_forms_and_the_last_counts) {
  const Config config = load({"--batch.global", "4", "--run.dir=a=b", "--batch.global=6", "--optim.lr", "1e-4",
                              "--data.train=", "--moe.expert_sizes", ""})
                            .config;
  EXPECT_EQ(config.batch.global, 6);
  EXPECT_EQ(config.run.dir, "a=b");
  EXPECT_EQ(config.optim.lr, 1e-4);
  EXPECT_EQ(config.data.train, "");
  EXPECT_THAT(config.moe.expert_sizes, IsEmpty());
}

TEST(ConfigCommandLine, leaves_other_arguments_in_order) {
  const LoadedConfig loaded = load({"file.txt", "--json", "--run.steps", "3", "--checkpoint", "a/b", "-n", "-4",
                                    "--prompt=--x.y z", "--print-config", "--", "--run.seed=9", "--help"});
  EXPECT_THAT(loaded.rest, ElementsAre("file.txt", "--json", "--checkpoint", "a/b", "-n", "-4", "--prompt=--x.y z",
                                       "--", "--run.seed=9", "--help"));
  EXPECT_EQ(loaded.config.run.steps, 3);
  EXPECT_TRUE(loaded.print_config);
  EXPECT_FALSE(loaded.help || loaded.list_keys);
}

TEST(ConfigCommandLine, unknown_keys_are_mistakes_and_swallow_their_value) {
  const std::string message = mistake({"--train.steps", "3", "--runs.seed=4"});
  EXPECT_THAT(message, AllOf(StartsWith("2 mistakes"),
                             HasSubstr("'train.steps' on the command line: did you mean "
                                       "run.steps?"),
                             HasSubstr("did you mean run.seed?")));
  EXPECT_THAT(mistake({"--abcdefghi.jklmnopqrs=1"}), HasSubstr("see --list-keys"));
  EXPECT_THAT(mistake({"--run.step=1"}), HasSubstr("did you mean run.steps?")) << "no guessing by prefix";
}

TEST_F(ConfigFile, mistakes_are_kept_for_who_tells_them_with_others) {
  write("[run]\nsteps = many\n[batch]\nglobal = 6\n");
  LoadedConfig base;
  base.config.run.steps = 7;
  base.config.run.seed = 5;
  base.origin["run.seed"] = {"base.ini", 3};
  const LoadedConfig loaded = read_config(Arguments{"--config", file_, "--moe.topk=2"}, base);
  EXPECT_THAT(loaded.mistakes, ElementsAre(StartsWith("run.steps = many in "), StartsWith("unknown key 'moe.topk'")));
  EXPECT_EQ(loaded.config.run.steps, 7);
  EXPECT_EQ(loaded.config.run.seed, 5u);
  EXPECT_EQ(loaded.config.batch.global, 6);
  EXPECT_EQ(loaded.origin.at("run.seed").file, "base.ini");
  EXPECT_EQ(loaded.origin.at("batch.global").line, 4);
  EXPECT_EQ(loaded.origin.size(), 2u);
}

TEST(ConfigCommandLine, help_comes_before_mistakes) {
  EXPECT_TRUE(load({"--run.stepz=1", "--help"}).help);
  EXPECT_TRUE(load({"--list-keys", "--config", "absent.ini"}).list_keys);
}

TEST(ConfigValues, truth_values) {
  for (const char* yes : {"true", "1", "yes"}) {
    EXPECT_TRUE(load({std::string("--moe.even_routing=") + yes}).config.moe.even_routing) << yes;
  }
  for (const char* no : {"false", "0", "no"}) {
    EXPECT_FALSE(load({std::string("--checkpoint.at_start=") + no}).config.checkpoint.at_start) << no;
  }
  for (const char* bad : {"", "on", "True", "2"}) {
    EXPECT_THAT(mistake({std::string("--moe.even_routing=") + bad}), HasSubstr("is not true or false")) << bad;
  }
}

TEST(ConfigValues, malformed_or_out_of_range_are_mistakes) {
  const std::vector<std::array<std::string, 2>> cases = {
      {"run.steps=", "not an integer"},
      {"run.steps=1.5", "not an integer"},
      {"run.steps=1e3", "not an integer"},
      {"run.steps=3 ", "not an integer"},
      {"run.steps=0", "must be >= 1"},
      {"run.steps=2147483648", "at most 2147483647"},
      {"run.steps=99999999999999999999", "too large"},
      {"run.threads=4294967296", "too large"},
      {"run.seed=-1", "not an integer >= 0"},
      {"run.seed=18446744073709551616", "too large"},
      {"optim.lr=fast", "not a number"},
      {"optim.lr=nan", "must be finite"},
      {"optim.lr=inf", "must be finite"},
      {"optim.lr=1e999", "too large"},
      {"optim.lr=0x1p3", "not a number"},
      {"optim.beta1=1", "must be in [0, 1)"},
      {"optim.beta2=-0.1", "must be in [0, 1)"},
      {"optim.lr=1e300", "must be in [0, 1e+30]"},
      {"optim.lr=1e-300", "must be 1e-30 or more, or 0"},
      {"optim.min_lr=1e31", "must be in [0, 1e+30]"},
      {"optim.eps=0", "must be in [1e-30, 1]"},
      {"optim.eps=1e-45", "must be in [1e-30, 1]"},
      {"optim.weight_decay=1e39", "must be in [0, 100]"},
      {"optim.clip_norm=1e39", "must be in [0, 1000000000]"},
      {"optim.clip_norm=1e-40", "must be 1e-30 or more, or 0"},
      {"optim.router_penalty=1e39", "must be in [0, 10000]"},
      {"balance.expert=1e38", "must be in [0, 10000]"},
      {"balance.z_loss=1e5", "must be in [0, 10000]"},
      {"balance.bias_rate=11", "must be in [0, 10]"},
      {"model.init_std=1e10", "must be in [0, 10]"},
      {"model.init_std=1e-46", "must be 1e-30 or more, or 0"},
      {"model.norm_eps=1e308", "must be in [1e-20, 1]"},
      {"model.norm_eps=0", "must be in [1e-20, 1]"},
      {"model.rope_base=0.5", "must be in [1, 1000000000000]"},
      {"moe.capacity_factor=1e300", "must be in [0, 1000000]"},
      {"run.timeout_seconds=1e300", "must be in (0, 1000000000]"},
      {"run.threads=4097", "must be in [0, 4096]"},
      {"data.valid_fraction=1.5", "must be in [0, 1)"},
      {"parallel.zero=4", "must be in [0, 3]"},
      {"model.vocab=1", "must be >= 2"},
      {"moe.expert_sizes=1,,2", "'' is not an integer"},
      {"moe.expert_sizes=1,", "'' is not an integer"},
      {"moe.expert_sizes=4,0", "0 must be >= 1"},
      {"optim.train_only=a,,b", "empty name between commas"},
      {"optim.train_only=a #b", "where a comment would begin"},
      {"moe.router=top", "must be one of softmax, sigmoid, sqrt_softplus, mlp, noisy, random, hash, uniform"},
      {"moe.gates=none", "must be one of auto, raw, renormalized, detached, ones"},
      {"model.attention=gqa", "must be one of mha, moa"},
      {"model.attention_weights=sticks", "must be one of softmax, stick_breaking"},
      {"run.precision=fp16", "must be one of f32, bf16"},
      {"run.dir=", "must not be empty"},
      {"checkpoint.resume=", "must not be empty"},
      {"data.train=a #b", "where a comment would begin"},
      {"data.train=;b", "where a comment would begin"},
      {"data.train=0.3 a 0.7 ~/b", "a path that begins with ~"},
      {"run.dir=~/a", "a path that begins with ~"},
      {"run.dir=~", "a path that begins with ~"},
      {"data.train=a ", "begin or end with a space"},
      {"data.train=a\nb", "control characters"},
  };
  for (const auto& [argument, expected] : cases) {
    const std::string message = mistake({"--" + argument});
    EXPECT_THAT(message, AllOf(HasSubstr(expected), HasSubstr("on the command line"))) << argument;
    EXPECT_THAT(message, StartsWith(argument.substr(0, argument.find('=')) + " = ")) << argument;
  }
  EXPECT_EQ(load({"--run.seed=18446744073709551615"}).config.run.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(load({"--data.train=caf\xE9/train"}).config.data.train, "caf\xE9/train");  // a valid file name
}

/// Returns a configuration in which no member has its default.
Config unusual() {
  Config c;
  c.run = {"runs/a b#c",
           12,
           18446744073709551615u,
           DeviceKind::cpu,
           Precision::bf16,
           3,
           5,
           11,
           13,
           0.1,
           7,
           9,
           2,
           false,
           GemmChoiceMethod::timed,
           "g.json",
           true,
           "a.prom",
           "9-12"};
  c.data = {"train ü",          "valid", "t.model", "llama3",         {3, 1, 4}, DataOrder::sequential,
            SampleKind::packed, true,    1.0 / 3,   ChangedData::warn};
  c.batch = {24, 3, 77};
  c.model = {
      3,
      96,
      6,
      2,
      16,
      100,
      333,
      12345.678,
      {RopeScalingKind::yarn, 40, 4096, 31.5, 0.75, false, 1.5, 5, 1.25, 0.707, 0.8, 0.25, RopeLayout::interleaved},
      3e-7,
      0.1 + 0.2,
      true,
      1,
      AttentionKind::experts,
      {6, 5, 4, 2, 3, 1e-7},
      AttentionWeights::stick_breaking,
      true,
      true,
      QkNormKind::all,
      77,
      {1, 0, 0},
      true,
      Recompute::full,
      Activation::gelu,
      1.5,
      6.25,
      true,
      128,
      3e-4,
      0.7,
      {0.3, DropoutKind::concrete, 9, 2e-6, 3e-5}};
  c.moe = {5,
           {5, 9, 4},
           4,
           3,
           6,
           2,
           true,
           3,
           2,
           7,
           {1, 2, 3, 4, 2147483647},
           RouterKind::noisy,
           true,
           Gates::detached,
           2.5,
           2,
           GroupScore::maximum,
           1.25,
           17,
           true};
  c.attention_experts = {6, 4, {6, 5, 4}, Gates::raw};
  c.sub_dimensions = {4, 5, 3, 2, SubDimensionScaling::printed, SubDimensionGates::ones, true, 6};
  c.mtp = {2, 0.25};
  c.balance = {1e-30, 0.05, 4, BalanceScope::batch, 1e-3, 0.2, 0.7, 0.03, 2e-3};
  c.optim = {UpdateRuleName::muon,
             1.08e-3,
             1e-5,
             LearningRateSchedule::cosine,
             900,
             17,
             2e-7,
             90,
             0,
             0.999,
             1e-12,
             0,
             0.5,
             6.5,
             33,
             0.875,
             MomentType::bf16,
             99.5,
             0.75,
             {"c", "d/*"},
             {"a[8:]", "b/*[0-9]?"},
             12,
             2.5,
             {"e/*"},
             0.25,
             3,
             2};
  c.parallel = {2,
                3,
                4,
                5,
                3,
                ScheduleKind::interleaved,
                6,
                true,
                PlacementKind::pairs,
                8,
                0.25,
                9,
                DispatchKind::direct,
                7,
                Overlap::batches,
                ExpertExchange::bounded,
                TransportKind::staged,
                NcclOrder::serial,
                5,
                true};
  c.eval = {11, 0};
  c.checkpoint = {13, 2.5, 0, "runs/a b", true, true};
  c.routing = {0, 7};
  return c;
}

TEST_F(ConfigFile, may_name_a_list_of_thousands_of_sources) {
  const std::string list = (directory_.path() / "list").string();
  std::ofstream lines(list);
  for (int i = 0; i < 4096; ++i) lines << i + 1 << " data/" << std::string(200, 'x') << i << '\n';
  lines.close();
  const LoadedConfig loaded = load(
      {"--data.train=@" + list, "--data.valid=@" + list, "--stage.2.from_step=9", "--stage.2.data.train=@" + list});
  EXPECT_THAT(loaded.mistakes, IsEmpty());
  EXPECT_GT(loaded.config.data.train.size(), 800'000u);
  write(to_ini(loaded.config));
  EXPECT_EQ(to_ini(load({"--config", file_}).config), to_ini(loaded.config));
}

TEST_F(ConfigFile, to_ini_and_print_config_read_back_to_the_same) {
  const Config config = unusual();
  write(to_ini(config));
  const Config again = load({"--config", file_}).config;
  EXPECT_EQ(to_ini(again), to_ini(config));
  EXPECT_EQ(again.run.dir, config.run.dir);
  EXPECT_EQ(again.run.seed, config.run.seed);
  EXPECT_EQ(again.data.valid_fraction, config.data.valid_fraction);
  EXPECT_EQ(again.data.changed, config.data.changed);
  EXPECT_EQ(again.model.init_std, config.model.init_std);
  EXPECT_EQ(again.moe.expert_sizes, config.moe.expert_sizes);
  EXPECT_EQ(again.optim.train_only, config.optim.train_only);
  EXPECT_EQ(again.balance.expert, config.balance.expert);
  EXPECT_EQ(again.parallel.schedule, config.parallel.schedule);
  EXPECT_EQ(again.checkpoint.at_start, config.checkpoint.at_start);

  write(print_config({.config = config}));
  EXPECT_EQ(to_ini(load({"--config", file_}).config), to_ini(config));
  write(to_ini({}));
  EXPECT_EQ(to_ini(load({"--config", file_}).config), to_ini({}));
}

TEST_F(ConfigFile, derived_values_are_comments_so_that_they_suit_other_ranks) {
  Config config, resolved;
  config.parallel.expert = 2;
  config.moe.experts = 8;
  config.moe.expert_hidden = 16;
  resolved = config;
  resolve(resolved, 2);
  const std::string text = to_ini(config, resolved);
  EXPECT_THAT(text, HasSubstr("\nmicro = 0  # derived here: 4\n"));
  EXPECT_THAT(text, HasSubstr("\ndevice_groups = 0  # derived here: 2\n"));
  EXPECT_THAT(text, HasSubstr("\ngates = auto  # derived here: raw\n"));
  write(text);
  Config again = load({"--config", file_}).config;
  EXPECT_EQ(to_ini(again), to_ini(config));
  EXPECT_TRUE(problems(again, 8).empty());
  resolve(again, 8);
  EXPECT_EQ(again.batch.micro, 1);
}

TEST(ConfigText, what_another_build_wrote_is_recalled_as_far_as_it_is_known) {
  const Config config = parse_config_leniently("[model]\nlayers = 7\nfuture = 1\nffn = unheard\n[run]\nseed = 3\n");
  EXPECT_EQ(config.model.layers, 7);
  EXPECT_EQ(config.model.ffn, Activation::swiglu);
  EXPECT_EQ(config.run.seed, 3u);
}

TEST(ConfigText, numbers_of_another_build_may_be_out_of_range) {
  const std::string text = "[optim]\nclip_norm = 1e10\n[batch]\nseq_len = 3000000000\n";
  EXPECT_EQ(parse_config_leniently(text).optim.clip_norm, 1e10);
  EXPECT_EQ(parse_config(text, "a checkpoint").config.optim.clip_norm, 1e10);
  EXPECT_EQ(parse_config(text, "a checkpoint").config.batch.seq_len, 3000000000);
  EXPECT_EQ(parse_config_leniently("[optim]\nclip_norm = inf\n").optim.clip_norm, OptimConfig{}.clip_norm);
  EXPECT_THROW(parse_config("[model]\nlayers = 0\n", "a checkpoint"), Error);
  EXPECT_EQ(parse_config_leniently("[model]\nlayers = 0\n").model.layers, 0);
}

TEST(ConfigText, keys_of_earlier_builds_are_passed_over) {
  const LoadedConfig loaded =
      parse_config("[parallel]\nbucket_mb = 25\nexpert = 2\n[moe]\nattention_experts = 0\n", "a checkpoint");
  EXPECT_EQ(loaded.config.parallel.expert, 2);
  EXPECT_THROW(parse_config("[parallel]\nbucket_gb = 25\n", "a checkpoint"), Error);
}

struct Anything {
  template <class T>
  operator T() const {  // never called: the conversion is used only to count the members of an aggregate
    throw std::logic_error("a value of Anything");
  }
};
template <class Aggregate, class... Fields>
constexpr std::size_t field_count() {
  if constexpr (requires { Aggregate{Fields{}..., Anything{}}; }) {
    return field_count<Aggregate, Fields..., Anything>();
  } else {
    return sizeof...(Fields);
  }
}

std::size_t lines_with(const std::string& text, const std::function<bool(const std::string&)>& wanted) {
  std::istringstream stream(text);
  std::size_t count = 0;
  for (std::string line; std::getline(stream, line);) count += wanted(line);
  return count;
}

TEST(ConfigKeys, cover_every_member) {
  // Three are no sections of keys: training_stages, division_batch and longest_seq_len.
  static_assert(field_count<Config>() == 17, "a new section: add it to the sum below");
  constexpr std::size_t members =
      field_count<RunConfig>() + field_count<DataConfig>() + field_count<BatchConfig>() + field_count<ModelConfig>() +
      field_count<MoeConfig>() + field_count<AttentionExpertsConfig>() + field_count<SubDimensionsConfig>() +
      field_count<MtpConfig>() + field_count<BalanceConfig>() + field_count<OptimConfig>() +
      field_count<ParallelConfig>() + field_count<EvalConfig>() + field_count<CheckpointConfig>() +
      field_count<RoutingConfig>() + field_count<PositionsConfig>() + field_count<LatentAttentionConfig>() +
      field_count<DropoutConfig>() - 3;  // the last three are in ModelConfig
  const auto is_key = [](const std::string& line) { return !line.empty() && line.front() != '['; };
  EXPECT_EQ(lines_with(to_ini({}), is_key), members);
  Config config;
  const auto aliases = std::ranges::count_if(keys_of(config), [](const auto& key) { return !key.alias.name.empty(); });
  EXPECT_EQ(lines_with(list_keys(), is_key), members + static_cast<std::size_t>(aliases) + 2);  // those of a stage
  EXPECT_EQ(lines_with(print_config({}), is_key), members);

  // Every key is bound to a different member: none has its default here.
  std::istringstream initial(to_ini({})), changed(to_ini(unusual()));
  for (std::string a, b; std::getline(initial, a) && std::getline(changed, b);) {
    if (is_key(a)) {
      EXPECT_NE(a, b);
    }
  }
}

TEST(ConfigKeys, names_of_other_frameworks_are_reported) {
  EXPECT_THAT(mistake({"--optim.learning_rate=1e-3"}), HasSubstr("did you mean optim.lr?"));
  EXPECT_THAT(mistake({"--model.num-layers=3"}), HasSubstr("did you mean model.layers?"));
  EXPECT_THAT(mistake({"--optim.lrr=1e-3"}), HasSubstr("did you mean optim.lr?"));
  EXPECT_THAT(mistake({"--moe.attention_experts=3"}), HasSubstr("did you mean attention_experts.count?"));
}

TEST(EditDistance, beyond_the_most_asked_for_is_only_known_to_be_more) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("intention", "execution"), 5);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("optim.lr", "optim.lr", 0), 0);
  for (std::size_t most = 0; most < 8; ++most) {
    const std::size_t found = edit_distance("intention", "execution", most);
    EXPECT_TRUE(most < 5 ? found > most : found == 5) << most;
    EXPECT_EQ(edit_distance("kitten", "sitting", most) > most, most < 3) << most;
    EXPECT_EQ(edit_distance("a", "abcd", most) > most, most < 3) << most;
  }
}

TEST(NearestWord, is_near_or_none) {
  const std::vector<std::string> words{"train", "tokenize", "plan"};
  EXPECT_EQ(nearest_word("trian", words), "train");
  EXPECT_EQ(nearest_word("tokenise", words), "tokenize");
  EXPECT_EQ(nearest_word("frobnicate", words), "");
  EXPECT_EQ(nearest_word(std::string(1 << 20, 'x'), words), "");
  EXPECT_EQ(nearest_word("train", {}), "");
}

TEST(ConfigKeys, documentation_lists_them_all) {
  EXPECT_THAT(contents(source_dir / "docs/configuration.md"), HasSubstr("```text\n" + list_keys() + "```\n"))
      << "put the output of `lyceum train --list-keys` into the last block of docs/configuration.md";
}

TEST_F(ConfigFile, print_config_tells_where_values_come_from) {
  write("[model]\nhidden = 96\nheads = 6\n");
  LoadedConfig loaded = load({"--config", file_, "--run.steps=5", "--moe.renormalize=true"});
  resolve(loaded.config, 2);
  const std::string text = print_config(loaded);
  std::map<std::string, std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines[line.substr(0, line.find(' '))] = line;
  EXPECT_THAT(lines["model.hidden"], AllOf(HasSubstr(" = 96 "), HasSubstr("# " + file_ + ":2")));
  EXPECT_THAT(lines["run.steps"], AllOf(HasSubstr(" = 5 "), HasSubstr("# command line")));
  EXPECT_THAT(lines["moe.gates"],
              AllOf(HasSubstr(" = renormalized "), HasSubstr("# command line, by moe.renormalize")));
  EXPECT_THAT(lines["model.head_dim"], AllOf(HasSubstr(" = 16 "), HasSubstr("# derived")));
  EXPECT_THAT(lines["batch.global"], AllOf(HasSubstr(" = 8 "), HasSubstr("# default")));
  const std::size_t column = lines["model.hidden"].find('#');
  for (const auto& [key, line] : lines) EXPECT_EQ(line.find('#'), column) << line;
}

}  // namespace
}  // namespace lyceum
