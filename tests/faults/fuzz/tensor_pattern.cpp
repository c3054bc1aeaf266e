#include "model/tensor_pattern.h"

#include "support.h"

/// Parses an entry of optim.train_only, the first line, and matches it with a tensor's name, the rest.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lyceum;
  const std::string text(fuzz::text_of(data, size));
  const std::size_t end = std::min(text.find('\n'), text.size());
  return fuzz::taken_or_refused([&] {
    const TensorPattern pattern(text.substr(0, end));
    pattern.matches(text.substr(std::min(end + 1, text.size())));
    pattern.matches("model/layers/31/mlp/experts/127/gate_proj/weight");
    for (const std::int64_t rows : {0, 1, 8, 1 << 30}) {
      const Range range = pattern.rows_of(rows);
      fuzz::hold(range.first >= 0 && range.count >= 0 && range.end() <= rows,
                 "a pattern selects rows outside of the tensor");
    }
    fuzz::hold(TensorPattern(pattern.text()).text() == text.substr(0, end),
               "a pattern changes when it is written and read");
  });
}
