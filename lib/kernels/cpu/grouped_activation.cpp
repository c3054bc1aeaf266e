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

template void run(const CpuStream&, const GemmThenActivation<float>&);
template void run(const CpuStream&, const GemmThenActivation<double>&);
template void run(const CpuStream&, const GemmThenActivation<bfloat16>&);
template void run(const CpuStream&, const GemmThenActivationBackward<float>&);
template void run(const CpuStream&, const GemmThenActivationBackward<double>&);
template void run(const CpuStream&, const GemmThenActivationBackward<bfloat16>&);

}  // namespace lyceum
