#include "kernels/grouped_activation.h"

namespace lyceum {

template <class T>
void run(const CpuStream& stream, const GemmThenActivation<T>& work) {
  launch_in_turns(stream, work);
}

template <class T>
void run(const CpuStream& stream, const GemmThenActivationBackward<T>& work) {
  launch_in_turns(stream, work);
}

LYCEUM_GROUPED_ACTIVATION_KERNELS(LYCEUM_CPU_INSTANCE)

}  // namespace lyceum
