#pragma once

#include "core/stream.h"

// How a kernel is declared, implemented and launched. The family `bias` is the example.
//
// 1. kernels/bias.h declares a description: a plain struct with the operands and options of one launch. Spans and
//    matrices are views of memory that the caller owns, in the memory of the stream's device. An operand that is
//    described as "or none" is optional: leave its span or matrix empty. The struct allocates nothing and may be copied
//    freely.
//
//      template <class T>
//      struct AddBias {
//        std::span<const T> bias;  // [cols]
//        Matrix<T> y;              // [rows, cols]
//      };
//
// 2. The same header declares one overload of run() per device. The type of the stream selects the overload. A
//    RehearsalStream computes nothing; core/stream.h has its run() for every description.
//
//      template <class T>
//      void run(const CpuStream& stream, const AddBias<T>& add);
//      template <class T>
//      void run(const CudaStream& stream, const AddBias<T>& add);
//
// 3. kernels/cpu/bias.cpp and kernels/cuda/bias.cu define the overloads. Each one checks the extents of the operands
//    first, with kernels/checks.h, and throws an Error with exit code 4 if they do not fit. Values in device memory,
//    such as indices, are checked by the kernel: if one is out of range, run() throws on the CPU, and the next
//    CudaStream::synchronise() throws on a GPU. A build without CUDA has neither the second file nor CudaStream in the
//    variant Stream.
//
//      template <class T>
//      void run(const CpuStream& stream, const AddBias<T>& add) {
//        require_length("AddBias", "bias", add.bias, add.y.cols);
//        for_each_row(stream, add.y.rows, add.y.cols, [&](std::int64_t r) { … });
//      }
//
// 4. The header ends with a list of the instances of the family, once for all devices:
//
//      #define LYCEUM_BIAS_KERNELS(INSTANCE) LYCEUM_FLOATS(INSTANCE, AddBias) LYCEUM_FLOATS(INSTANCE, BiasGrad)
//
//    LYCEUM_FLOATS and LYCEUM_ACCUMULATORS list a description with each number type, INSTANCE(Clear<std::int64_t>) a
//    single instance. Each source ends with the explicit instantiations: LYCEUM_BIAS_KERNELS(LYCEUM_CPU_INSTANCE) in
//    bias.cpp, LYCEUM_BIAS_KERNELS(LYCEUM_CUDA_INSTANCE) in bias.cu. The list is a macro because it takes a declaration
//    at namespace scope to instantiate run() explicitly: an instance that an expression over a list of types creates
//    implicitly must not be used from another source (C++20, [temp.pre]).
//
// 5. The caller fills the description by member names and passes it to launch() (core/stream.h). launch() calls the
//    overload for the device that the stream is on and records the time if the stream has a profile. On a GPU it
//    returns before the work is done. Tensors of the stream may be freed at once, because only later work of the same
//    stream reuses their memory.
//
//      launch(stream, AddBias<T>{.bias = bias.span<T>(), .y = y.matrix<T>()});
//
// 6. tests/kernels/bias_test.cpp compares the result with a computation in double, on the CPU and on a GPU if the
//    machine has one. The instance for double is the reference: simple and slow.

/// The explicit instantiation of run() for a description, on the CPU and on CUDA.
#define LYCEUM_CPU_INSTANCE(...) template void run(const CpuStream&, const __VA_ARGS__&);
#define LYCEUM_CUDA_INSTANCE(...) template void run(const CudaStream&, const __VA_ARGS__&);

/// Lists the instances of a description for the number types of weights and activations. `...`: its template arguments
/// after the number type, the same for all instances.
#define LYCEUM_FLOATS(INSTANCE, Description, ...)            \
  INSTANCE(Description<float __VA_OPT__(, ) __VA_ARGS__>)    \
  INSTANCE(Description<bfloat16 __VA_OPT__(, ) __VA_ARGS__>) \
  INSTANCE(Description<double __VA_OPT__(, ) __VA_ARGS__>)
/// Lists the instances of a description for the number types of sums (see Accumulator). `...`: as above.
#define LYCEUM_ACCUMULATORS(INSTANCE, Description, ...)   \
  INSTANCE(Description<float __VA_OPT__(, ) __VA_ARGS__>) \
  INSTANCE(Description<double __VA_OPT__(, ) __VA_ARGS__>)
