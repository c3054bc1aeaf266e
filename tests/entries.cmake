# Defines the CTest entries of GoogleTest programs. ctest reads this file each time it starts. There is one entry per
# program and number of ranks, since a start takes longer than most cases. With LYCEUM_TEST_CASES in the environment
# there is one entry per case, so that filters can select cases.

cmake_minimum_required(VERSION 3.25)

# entries(NAME n PROGRAM file REPORTS folder LABEL l TIMEOUT s [COST c] [PREFIX p] [PROCESSORS n] [SKIPS]
#         [LAUNCHER command ...] [ENVIRONMENT A=B ...])
#   REPORTS: folder for GoogleTest's report of each case, NAME.xml (scripts/check_left_out.py reads them).
#   SKIPS: exit code 77 of the program means that something it needs is missing, such as a GPU.
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
      return()  # not built, so none of its tests was requested
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
  list(APPEND E_ENVIRONMENT "GTEST_OUTPUT=xml:${E_REPORTS}/${name}.xml")
  set_tests_properties("${name}" PROPERTIES ${properties} ENVIRONMENT "${E_ENVIRONMENT}")
endfunction()
