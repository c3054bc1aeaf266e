# The GPU code: finds the CUDA toolkit, or with LYCEUM_CUDA_ON_HOST builds an emulation that runs kernels on the CPU. Only then
# are the sources in the cuda/ folders of modules built (cmake/room.cmake). CPU builds need nothing from this file.
if(LYCEUM_CUDA AND LYCEUM_CUDA_ON_HOST)
  message(FATAL_ERROR "LYCEUM_CUDA builds for GPUs, LYCEUM_CUDA_ON_HOST for the CPU instead: set one of them")
endif()

if(LYCEUM_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)  # the bin folder of the toolkit is rarely on PATH
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "LYCEUM_CUDA=ON, but nvcc was not found: install the CUDA toolkit (scripts/install-deps.sh --cuda "
        "says how) or set CMAKE_CUDA_COMPILER")
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${LYCEUM_CUDA_ARCHITECTURES})
  if(LYCEUM_CUDA_COMMON_ARCHITECTURE)
    set(CMAKE_CUDA_ARCHITECTURES ${LYCEUM_CUDA_COMMON_ARCHITECTURE})
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know this option of nvcc
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit REQUIRED)
  # Never -lcuda: a program linked with the driver's stub does not start on a machine without a driver.
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})  # only for scripts/bundle.sh --with-cuda
  add_library(lyceum_nccl INTERFACE)
  target_include_directories(lyceum_nccl SYSTEM INTERFACE ${NCCL_INCLUDE})
  add_library(lyceum_cuda INTERFACE)
  # cuBLASLt and NCCL are not linked, but loaded on first use: core/library_on_demand.h.
  target_link_libraries(lyceum_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
  list(APPEND CMAKE_BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR})
  add_compile_definitions(LYCEUM_CUDA=1)
  # Kernels call constexpr functions of the standard library and of views. Warnings are errors, as in C++. Warning 554 is about
  # the conversion of a view to a view of constants, which is never used for a view that is one already.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo;-Werror=all-warnings;-diag-suppress=554>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror,-fopenmp-simd,-march=${LYCEUM_ARCH}>")
endif()

# With LYCEUM_CUDA_COMMON_ARCHITECTURE, compiles these sources also for the other GPU architectures.
function(for_all_architectures)  # sources...
  if(NOT LYCEUM_CUDA_COMMON_ARCHITECTURE OR NOT ARGN)
    return()
  endif()
  set(options)
  foreach(architecture ${LYCEUM_CUDA_ARCHITECTURES})
    string(REGEX MATCH "^[0-9]+[a-z]?" number ${architecture})
    if(architecture STREQUAL LYCEUM_CUDA_COMMON_ARCHITECTURE)
      continue()
    elseif(architecture MATCHES "-real$")
      set(code sm_${number})
    elseif(architecture MATCHES "-virtual$")
      set(code compute_${number})
    else()
      set(code "compute_${number},sm_${number}")
    endif()
    list(APPEND options "--generate-code=arch=compute_${number},code=[${code}]")
  endforeach()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

if(LYCEUM_CUDA_ON_HOST)
  file(GLOB host_cuda CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/host_cuda/*.cpp)
  list(FILTER host_cuda EXCLUDE REGEX "/host_nccl[^/]*$")
  add_library(lyceum_cuda STATIC ${host_cuda})
  target_include_directories(lyceum_cuda SYSTEM PUBLIC ${CMAKE_SOURCE_DIR}/tests/support/host_cuda)
  target_include_directories(lyceum_cuda PRIVATE ${CMAKE_SOURCE_DIR}/lib)
  # Optimised and without sanitizers, since every kernel runs through this code; the sanitizers check the modules.
  target_compile_options(lyceum_cuda PRIVATE -O2 $<$<BOOL:${LYCEUM_SANITIZE}>:-fno-sanitize=all>)
  file(GLOB host_nccl CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/host_cuda/host_nccl*.cpp)
  add_library(lyceum_nccl STATIC ${host_nccl})
  target_link_libraries(lyceum_nccl PUBLIC lyceum_cuda PRIVATE MPI::MPI_CXX)
  add_compile_definitions(LYCEUM_CUDA=1)
endif()
