#include "io/data/loader/data_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>

#include "core/error.h"
#include "io/data/tokens/megatron_writer.h"
#include "io/data/tokens/token_formats.h"
#include "support/temporary_directory.h"

namespace lyceum {
namespace {

using testing::ElementsAre;

/// Sources of the tokens 0, 1, 2, …, so that the first token of a sample tells its place.
class DataProgressTest : public testing::Test {
 protected:
  TokenLoader::Source source(const std::string& name, std::int32_t tokens, double weight, std::size_t number,
                             std::int64_t seq_len = 4) {
    const std::string prefix = directory_.path() / name;
    if (!written_.contains(name)) {
      MegatronWriter writer(prefix, tokens);
      std::vector<std::int32_t> values(static_cast<std::size_t>(tokens));
      std::iota(values.begin(), values.end(), 0);
      writer.add_document(values);
      writer.finish();
      written_.insert(name);
    }
    const auto samples = std::make_shared<const TokenSamples>(open_tokens(prefix), SampleShape{.seq_len = seq_len});
    return {samples, SampleOrder(SampleOrder::Kind::shuffled, 3, 0, samples->count(), number), weight};
  }
  /// Reads samples [first, first + count) and adds the samples of each source, by the name of the source, to `read`.
  void read(const TokenLoader& loader, std::int64_t first, std::int64_t count) {
    const auto seq_len = static_cast<std::size_t>(loader.sources().front().samples->shape().seq_len);
    for (std::int64_t i = first; i < first + count; ++i) {
      std::vector<std::int32_t> inputs(seq_len), targets(seq_len);
      loader.load(i, 1, 100000, {inputs, targets});
      const std::string& prefix = loader.sources()[loader.source_sample(i).source].samples->token_source().prefix();
      read_[prefix.substr(prefix.rfind('/') + 1)].push_back(inputs.front());
    }
  }

  TemporaryDirectory directory_;
  std::set<std::string> written_;
  std::map<std::string, std::vector<std::int32_t>> read_;
};

TEST_F(DataProgressTest, EachSourceContinuesWhereItWasLeft) {
  const TokenLoader first({source("a", 401, 3, 0), source("b", 201, 1, 1)});
  // In the second mixture, the sources have another place and other weights, and one is new.
  const TokenLoader second({source("b", 201, 2, 1), source("c", 161, 1, 2), source("a", 401, 1, 0)});
  read(first, 0, 37);
  const DataProgress begin = progress_at(first, {}, 37);
  EXPECT_EQ(begin.samples, 37);
  EXPECT_EQ(begin.tokens, 37 * 4);
  const std::size_t of_a = read_["a"].size(), of_b = read_["b"].size();
  EXPECT_EQ(of_a + of_b, 37u);
  const TokenLoader next = continued(second, begin);
  read(next, 37, 80);
  EXPECT_EQ(read_["b"].size() - of_b, 40u);
  EXPECT_EQ(read_["c"].size(), 20u);
  // The first passes of all sources contain every sample once, in the order of a run that reads the source alone.
  for (const auto& [name, number, tokens] :
       {std::tuple("a", 0, 401), std::tuple("b", 1, 201), std::tuple("c", 2, 161)}) {
    const TokenLoader alone({source(name, tokens, 1, static_cast<std::size_t>(number))});
    for (std::size_t i = 0; i < read_[name].size(); ++i) {
      EXPECT_EQ(read_[name][i], 4 * alone.sources()[0].order(static_cast<std::int64_t>(i))) << name << " " << i;
    }
    const std::size_t pass = std::min<std::size_t>(read_[name].size(), static_cast<std::size_t>(tokens / 4));
    EXPECT_EQ(std::set(read_[name].begin(), read_[name].begin() + static_cast<std::ptrdiff_t>(pass)).size(), pass);
  }
  // A third stage without the source c keeps its progress.
  const DataProgress later = progress_at(next, begin, 117);
  EXPECT_EQ(later.tokens, 117 * 4);
  const TokenLoader third = continued(first, later);
  const DataProgress last = progress_at(third, later, 217);
  const auto c = std::ranges::find_if(last.sources, [](const auto& s) { return s.prefix.ends_with("/c"); });
  ASSERT_NE(c, last.sources.end());
  EXPECT_EQ(c->samples, 20);
  EXPECT_THAT(third.next_samples(117),
              ElementsAre(static_cast<std::int64_t>(read_["a"].size()), static_cast<std::int64_t>(read_["b"].size())));
}

TEST_F(DataProgressTest, OtherLengthsContinueInProportion) {
  const TokenLoader shorter({source("a", 401, 1, 0)});     // 100 samples
  const TokenLoader longer({source("a", 401, 1, 0, 16)});  // 25 samples
  EXPECT_EQ(continued(longer, progress_at(shorter, {}, 0)).next_samples(0), std::vector<std::int64_t>{0});
  EXPECT_EQ(continued(longer, progress_at(shorter, {}, 50)).next_samples(50), std::vector<std::int64_t>{13});
  EXPECT_EQ(continued(longer, progress_at(shorter, {}, 52)).next_samples(52), std::vector<std::int64_t>{13});
  EXPECT_EQ(continued(longer, progress_at(shorter, {}, 99)).next_samples(99), std::vector<std::int64_t>{25});
  EXPECT_EQ(continued(longer, progress_at(shorter, {}, 225)).next_samples(225), std::vector<std::int64_t>{57});
  const DataProgress begin = progress_at(shorter, {}, 52);
  const DataProgress end = progress_at(continued(longer, begin), begin, 60);
  EXPECT_EQ(end.tokens, 52 * 4 + 8 * 16);
  EXPECT_EQ(end.sources.at(0).samples, 21);
  EXPECT_EQ(end.sources.at(0).per_pass, 25);
}

TEST_F(DataProgressTest, ARenamedSourceContinuesByItsFingerprint) {
  const auto with = [](TokenLoader::Source source, const std::string& fingerprint) {
    source.fingerprint = fingerprint;
    return source;
  };
  const TokenLoader first({with(source("a", 401, 1, 0), "A"), with(source("b", 401, 1, 1), "B")});
  const DataProgress begin = progress_at(first, {}, 40);
  // The files of a are moved to c; as the third source of the run, c would have other permutations. A new source d has
  // the contents of b, which is read, too.
  const TokenLoader second({with(source("c", 401, 1, 2), "A"), with(source("b", 401, 1, 1), "B"),
                            with(source("d", 401, 1, 3), "B"), source("e", 401, 1, 4)});
  const TokenLoader next = continued(second, begin);
  EXPECT_THAT(next.next_samples(40), ElementsAre(20, 20, 0, 0));
  read(next, 40, 40);
  const TokenLoader alone({source("a", 401, 1, 0)});
  ASSERT_EQ(read_["c"].size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(read_["c"][i], 4 * alone.sources()[0].order(static_cast<std::int64_t>(20 + i)));
  }
  const DataProgress end = progress_at(next, begin, 80);
  std::vector<std::string> names;
  for (const SourceProgress& source : end.sources) names.push_back(source.prefix.substr(source.prefix.rfind('/') + 1));
  EXPECT_THAT(names, ElementsAre("c", "b", "d", "e")) << "no entry under the former name";
  EXPECT_EQ(end.sources[0].order, 0);
  // A source that is absent for a stage continues under its new name.
  const TokenLoader without({with(source("b", 401, 1, 1), "B")});
  const DataProgress later = progress_at(continued(without, begin), begin, 60);
  EXPECT_THAT(continued(second, later).next_samples(60), ElementsAre(20, 40, 0, 0));
}

TEST_F(DataProgressTest, WithoutProgressNothingChanges) {
  const TokenLoader loader({source("a", 401, 3, 0), source("b", 201, 1, 1)});
  const TokenLoader same = continued(loader, {});
  for (std::int64_t i = 0; i < 300; ++i) EXPECT_EQ(same.source_sample(i), loader.source_sample(i));
  EXPECT_THROW(progress_at(loader, {.samples = 8}, 7), Error);
}

}  // namespace
}  // namespace lyceum
