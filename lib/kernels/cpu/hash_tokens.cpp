#include "kernels/hash_tokens.h"

#include "kernels/router_checks.h"

namespace lyceum {

template <class A>
void run(const CpuStream&, const HashTokens<A>& hash) {
  require_fitting(hash);
  for (std::size_t t = 0; t < hash.tokens.size(); ++t) {
    const std::int32_t expert = hashed_expert(hash.tokens[t], hash.layer, hash.experts);
    hash.index[t] = expert;
    hash.gates[t] = 1;
    if (!hash.counts.empty()) ++hash.counts[static_cast<std::size_t>(expert)];
    if (!hash.probability.empty()) ++hash.probability[static_cast<std::size_t>(expert)];
  }
}

LYCEUM_HASH_TOKENS_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
