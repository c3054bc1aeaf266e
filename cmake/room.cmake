# Compiles `count` sources of a target as one, since parsing headers takes as long as compiling most files. With
# LYCEUM_UNITY=OFF each file is compiled separately. scripts/check_includes.py finds files that need the includes of others.
function(lyceum_together target count)
  math(EXPR count "${count} * ${LYCEUM_UNITY_FACTOR}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LYCEUM_UNITY} UNITY_BUILD_BATCH_SIZE ${count})
  if(LYCEUM_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # GCC treats the included sources as headers
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Makes files that each include `count` of these CUDA sources, and sets `result` to their names: nvcc parses headers five times
# per file, and CMake 3.25 has no unity builds for CUDA. Sources for tensor cores are compiled separately, as each takes long.
function(cuda_together result count)  # name of the files, sources...
  math(EXPR count "${count} * ${LYCEUM_UNITY_FACTOR}")
  list(POP_FRONT ARGN name)
  set(alone ${ARGN})
  set(files)
  if(LYCEUM_UNITY)
    list(FILTER ARGN EXCLUDE REGEX "_tensor_core\\.")
    list(REMOVE_ITEM alone ${ARGN})
    list(LENGTH ARGN sources)
    foreach(first RANGE 0 ${sources} ${count})
      if(first LESS sources)
        list(SUBLIST ARGN ${first} ${count} now)
        list(TRANSFORM now REPLACE "(.+)" "#include \"\\1\"\n")
        string(JOIN "" text ${now})
        set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_together_${first}.cu)
        file(CONFIGURE OUTPUT ${file} CONTENT "${text}")
        list(APPEND files ${file})
      endif()
    endforeach()
  endif()
  set(${result} ${alone} ${files} PARENT_SCOPE)
endfunction()

# Defines the target of a module: lyceum_room(NAME USES rooms... LINKS libraries...)
# It compiles every .cpp file under lib/NAME; only in a build with CUDA also those under lib/NAME/cuda, and every .cu file.
# Includes are written "NAME/file.h".
function(lyceum_room name)
  cmake_parse_arguments(ROOM "" "" "USES;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  if(LYCEUM_CUDA OR LYCEUM_CUDA_ON_HOST)
    file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
    if(LYCEUM_CUDA_ON_HOST)  # the emulation has no tensor cores, see tests/support/host_cuda/tensor_core.cpp
      list(FILTER sources EXCLUDE REGEX "_tensor_core\\.|/(cublaslt|nccl)_on_demand\\.")  # it loads no libraries
      list(FILTER device_sources EXCLUDE REGEX "_tensor_core\\.")
    endif()
    if(device_sources)
      set(by_architecture ${device_sources})  # only their code is not the same for all GPUs
      list(FILTER by_architecture INCLUDE REGEX "_tensor_core\\.")
      for_all_architectures(${by_architecture})
      cuda_together(device_sources 6 ${name} ${device_sources})
    endif()
    if(LYCEUM_CUDA_ON_HOST)
      # Kernels are optimised, since one CPU thread runs all threads of a grid. The check for use after return, for which the
      # sanitizer would move stack frames to the heap, is off: kernels return no addresses of local variables.
      set_source_files_properties(${device_sources} PROPERTIES LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION ON
        COMPILE_OPTIONS "-O2;-ftls-model=initial-exec;$<$<BOOL:${LYCEUM_SANITIZE}>:-fsanitize-address-use-after-return=never>")
    endif()
    list(APPEND sources ${device_sources})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    lyceum_together(${name} 8)
    target_link_libraries(${name} PRIVATE ${ROOM_LINKS})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} ${scope} ${ROOM_USES})
  if((LYCEUM_CUDA OR LYCEUM_CUDA_ON_HOST) AND name STREQUAL core)
    target_link_libraries(${name} ${scope} lyceum_cuda)
  endif()
endfunction()
