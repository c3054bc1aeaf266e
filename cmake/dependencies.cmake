# Finds the libraries of the distribution and defines them as targets. Each module links only those that it names.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
# Without dnnl-config.cmake: Debian's requires OpenCL, which is not needed here.
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(lyceum_dnnl INTERFACE)
target_include_directories(lyceum_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE})
target_link_libraries(lyceum_dnnl INTERFACE ${DNNL_LIBRARY})

find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(GTest REQUIRED)

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI REQUIRED COMPONENTS CXX)

set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C HL)
add_library(lyceum_hdf5 INTERFACE)
target_include_directories(lyceum_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(lyceum_hdf5 INTERFACE ${HDF5_HL_LIBRARIES} ${HDF5_C_LIBRARIES})

find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
add_library(lyceum_sentencepiece INTERFACE)
target_include_directories(lyceum_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE})
target_link_libraries(lyceum_sentencepiece INTERFACE ${SENTENCEPIECE_TRAIN_LIBRARY} ${SENTENCEPIECE_LIBRARY})

# plain_library(NAME header library): defines lyceum_NAME for a library without a package file
function(plain_library name header library)
  string(TOUPPER ${name} upper)
  find_path(${upper}_INCLUDE ${header} REQUIRED)
  find_library(${upper}_LIBRARY ${library} REQUIRED)
  add_library(lyceum_${name} INTERFACE)
  target_include_directories(lyceum_${name} SYSTEM INTERFACE ${${upper}_INCLUDE})
  target_link_libraries(lyceum_${name} INTERFACE ${${upper}_LIBRARY})
endfunction()
plain_library(oniguruma oniguruma.h onig)
# Debian's library exports its own regcomp and regexec. The first library on the command line wins, so libc must precede it.
target_link_options(lyceum_oniguruma INTERFACE "SHELL:-Wl,--push-state,--no-as-needed -l:libc.so.6 -Wl,--pop-state")
plain_library(utf8proc utf8proc.h utf8proc)
plain_library(zstd zstd.h zstd)
find_package(ZLIB REQUIRED)
