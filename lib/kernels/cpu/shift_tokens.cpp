#include "kernels/shift_tokens.h"

#include <iterator>

#include "kernels/cpu/parallel_for.h"
#include "kernels/shift_tokens_checks.h"

namespace lyceum {

void run(const CpuStream& stream, const ShiftTokens& shift) {
  require_fitting(shift);
  for_each_row(stream, std::ssize(shift.inputs), 1, [&](std::int64_t at) { shift_token(shift, at); });
}

}  // namespace lyceum
