# Compiles `count` sources of a target at a time: a header costs as much as what most files do with it. With
# LYCEUM_UNITY=OFF each file is compiled by itself; scripts/check_includes.py looks for files that lean on another's includes.
function(lyceum_together target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LYCEUM_UNITY} UNITY_BUILD_BATCH_SIZE ${count})
  if(LYCEUM_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # GCC takes a source that another one includes for a header
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Sets `result` to files that each include `count` of these CUDA sources: nvcc reads headers five times a file, and CMake
# 3.25 puts no CUDA sources together. Those for tensor cores stay alone, they take long enough.
function(cuda_together result count)  # name of the files, sources...
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

# One target per module of the design: lyceum_room(NAME USES rooms... LINKS libraries...)
# compiles every .cpp under lib/NAME, in a build with CUDA those under lib/NAME/cuda and every .cu too; includes are
# written "NAME/file.h".
function(lyceum_room name)
  cmake_parse_arguments(ROOM "" "" "USES;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  if(LYCEUM_CUDA OR LYCEUM_CUDA_ON_HOST)
    file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
    if(LYCEUM_CUDA_ON_HOST)  # which has no tensor cores, and says so in tests/support/host_cuda/tensor_core.cpp
      list(FILTER sources EXCLUDE REGEX "_tensor_core\\.|/cublaslt_on_demand\\.")  # nor a library to load
      list(FILTER device_sources EXCLUDE REGEX "_tensor_core\\.")
    endif()
    if(device_sources)
      cuda_together(device_sources 6 ${name} ${device_sources})
    endif()
    if(LYCEUM_CUDA_ON_HOST)
      # One CPU thread runs every thread of a grid, so the kernels are optimised; their frames stay on the stack, since kernels
      # return no addresses of local variables.
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
