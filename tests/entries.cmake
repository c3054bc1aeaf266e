# What ctest runs of a GoogleTest program; ctest itself reads this, each time it starts. One entry a program and number of
# ranks, since a start costs more than most cases; with LYCEUM_TEST_CASES in the environment one entry a case, for filters.

cmake_minimum_required(VERSION 3.25)

# entries(NAME n PROGRAM file REPORTS folder LABEL l TIMEOUT s [COST c] [PREFIX p] [PROCESSORS n] [SKIPS]
#         [LAUNCHER command ...] [ENVIRONMENT A=B ...])
#   REPORTS: where GoogleTest writes what it says of each case, NAME.json (scripts/check_left_out.py reads them).
#   SKIPS: the program may say with exit code 77 that what it needs is not here.
function(entries)
  cmake_parse_arguments(PARSE_ARGV 0 E "SKIPS" "NAME;PROGRAM;LABEL;TIMEOUT;COST;PREFIX;PROCESSORS;REPORTS"
    "LAUNCHER;ENVIRONMENT")
  set(properties LABELS ${E_LABEL} TIMEOUT ${E_TIMEOUT} FAIL_REGULAR_EXPRESSION "Running 0 tests"
    FIXTURES_REQUIRED ${E_PREFIX}build)
  if(E_COST)
    list(APPEND properties COST ${E_COST})
  endif()
  if(E_PROCESSORS)
    list(APPEND properties PROCESSORS ${E_PROCESSORS})
  endif()
  if(E_SKIPS)
    list(APPEND properties SKIP_RETURN_CODE 77)
  endif()

  if(DEFINED ENV{LYCEUM_TEST_CASES})
    if(NOT EXISTS "${E_PROGRAM}")
      return()  # not built, so no test of it was asked for
    endif()
    execute_process(COMMAND env ASAN_OPTIONS=detect_leaks=0 "${E_PROGRAM}" --gtest_list_tests
      OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")
    string(REGEX MATCHALL "[^\n]+" listed "${listed}")
    foreach(line IN LISTS listed)
      if(line MATCHES "^([^ ]+\\.)$")
        set(suite "${CMAKE_MATCH_1}")
      elseif(line MATCHES "^  ([^ ]+)$")
        set(case "${suite}${CMAKE_MATCH_1}")
        set(name "${E_PREFIX}${E_NAME}.${case}")
        add_test("${name}" ${E_LAUNCHER} "${E_PROGRAM}" "--gtest_filter=${case}")
        set_tests_properties("${name}" PROPERTIES ${properties} ENVIRONMENT "${E_ENVIRONMENT}")
      endif()
    endforeach()
    return()
  endif()

  set(name "${E_PREFIX}${E_NAME}")
  add_test("${name}" ${E_LAUNCHER} "${E_PROGRAM}")
  list(APPEND E_ENVIRONMENT "GTEST_OUTPUT=json:${E_REPORTS}/${name}.json")
  set_tests_properties("${name}" PROPERTIES ${properties} ENVIRONMENT "${E_ENVIRONMENT}")
endfunction()
