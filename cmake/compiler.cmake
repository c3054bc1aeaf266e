# Compiler options of all targets.
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
# Options for vector code that keep NaN, infinities and the order of sums. (Those of nvcc are in cuda.cmake.)
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Werror;-march=${LYCEUM_ARCH}>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-math-errno;-fno-trapping-math;-mprefer-vector-width=512>")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Reduces the garbage collection of the compiler. It takes an eighth of the time of a build, to save memory that machines have.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:--param ggc-min-expand=1000 --param ggc-min-heapsize=2000000>")
else()  # std::stable_sort of libstdc++ 12 calls a deprecated function; without optimisation, clang warns of each `omp simd`
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-deprecated-declarations;-Wno-pass-failed>")
  # With -march=native on processors with AVX10, clang 19 warns of features that it has detected itself.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-Winvalid-feature-combination LYCEUM_HAS_FEATURE_WARNING)
  if(LYCEUM_HAS_FEATURE_WARNING)
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-invalid-feature-combination>")
  endif()
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
# -g1: names and lines in reports of the sanitizers. -O0: optimisation doubles the time of a build; only
# the numerical modules override it (lib/CMakeLists.txt).
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
if(LYCEUM_SANITIZE)
  add_compile_definitions(LYCEUM_SANITIZE=1)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(LYCEUM_ODR_CHECK)
  add_link_options(-fno-lto)  # the data that -flto adds to objects are only for odr_check.cmake
endif()
if(LYCEUM_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer -O2)
  add_link_options(-fsanitize=address,undefined)
endif()
