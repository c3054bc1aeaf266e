#include "kernels/grouped_activation.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const GemmThenActivation<T>& work) {
  launch_both(stream, work);
}

template <class T>
void run(const CpuStream& stream, const GemmThenActivationBackward<T>& work) {
  launch_both(stream, work);
}

LYCEUM_GROUPED_ACTIVATION_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
