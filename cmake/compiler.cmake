# What every target is compiled with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

if((LYCEUM_SANITIZE OR LYCEUM_FUZZ) AND NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  message(FATAL_ERROR "The sanitizers need clang, but ${CMAKE_BINARY_DIR} was configured with ${CMAKE_CXX_COMPILER}: "
    "configure it anew with cmake --fresh --preset cpu-debug (or --preset fuzz)")
endif()
if(LYCEUM_ODR_CHECK AND NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "LYCEUM_ODR_CHECK needs GCC, not ${CMAKE_CXX_COMPILER}")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_definitions(OMPI_SKIP_MPICXX=1)
# Vector code without giving up NaN, infinities or a fixed order of sums. (nvcc's options are in cuda.cmake.)
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror;-march=${LYCEUM_ARCH}>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-math-errno;-fno-trapping-math;-mprefer-vector-width=512>")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # The compiler's own garbage collection takes an eighth of a build, and saves memory that no machine lacks today.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:--param ggc-min-expand=1000 --param ggc-min-heapsize=2000000>")
else()  # std::stable_sort of libstdc++ 12 calls a function that C++17 deprecated; without optimisation, `omp simd` is not one
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-deprecated-declarations;-Wno-pass-failed>")
  # clang 19 warns of the features that it finds itself with -march=native on processors with AVX10.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-Winvalid-feature-combination LYCEUM_HAS_FEATURE_WARNING)
  if(LYCEUM_HAS_FEATURE_WARNING)
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-invalid-feature-combination>")
  endif()
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
# Names and lines for the sanitizers; optimised only where there are many numbers, since that doubles the time of a build.
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
if(LYCEUM_SANITIZE)
  add_compile_definitions(LYCEUM_SANITIZE=1)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(LYCEUM_ODR_CHECK)
  add_link_options(-fno-lto)  # odr_check.cmake alone reads what -flto leaves in objects
endif()
if(LYCEUM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer -O2)
  add_link_options(-fsanitize=address,undefined)
endif()
