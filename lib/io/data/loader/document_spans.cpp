#include "io/data/loader/document_spans.h"

#include <array>
#include <span>

#include "core/error.h"
#include "io/files/sha256.h"

namespace lyceum {

SpanSurvey survey_spans(const TokenSource& source, std::int64_t seq_len, std::atomic<std::int64_t>* progress) {
  require_usage(seq_len > 0, "batch.seq_len={}: a sample must have at least one token", seq_len);
  SpanSurvey survey;
  Sha256 digest;
  digest.update(std::as_bytes(std::span(&seq_len, 1)));
  std::int64_t begin = -1;
  source.for_document_begins([&](std::span<const std::int64_t> begins) {
    if (progress) ++*progress;
    digest.update(std::as_bytes(begins));
    for (const std::int64_t next : begins) {
      const std::int64_t inputs = begin < 0 ? 0 : next - 1 - begin;
      begin = next;
      if (inputs <= 0) continue;
      const std::int64_t whole = inputs / seq_len, rest = inputs % seq_len;
      const std::int64_t least = rest > 0 ? rest : seq_len;
      ++survey.documents;
      survey.cut_documents += inputs > seq_len;
      survey.spans += whole + (rest > 0);
      survey.predicted_tokens += inputs;
      survey.least_inputs = survey.least_inputs == 0 ? least : std::min(survey.least_inputs, least);
    }
  });
  survey.key = digest.finish();
  return survey;
}

}  // namespace lyceum
