# Standard and library headers that most sources include, compiled once for the program and once for its tests:
#   target_precompile_headers(TARGET REUSE_FROM common_headers)
# A source still includes what it uses: CMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
set(common_headers <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <mutex>
  <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map> <vector>
  <fmt/format.h> <nlohmann/json.hpp>)
file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cpp.new "// Nothing but the headers that are compiled for others.\n")
file(COPY_FILE ${CMAKE_BINARY_DIR}/precompiled.cpp.new ${CMAKE_BINARY_DIR}/precompiled.cpp ONLY_IF_DIFFERENT)
add_library(common_headers OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
target_precompile_headers(common_headers PRIVATE ${common_headers})
add_library(test_headers OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
target_link_libraries(test_headers PRIVATE GTest::gtest GTest::gmock)
target_precompile_headers(test_headers PRIVATE ${common_headers} <gmock/gmock.h> <gtest/gtest.h>)
