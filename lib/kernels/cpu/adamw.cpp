#include "kernels/adamw.h"

#include "kernels/cpu/weight_update.h"

namespace lyceum {

LYCEUM_UPDATE_RULE_KERNELS(LYCEUM_CPU_INSTANCE, AdamW)

}  // namespace lyceum
