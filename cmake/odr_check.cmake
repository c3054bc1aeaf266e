# Checks the one-definition rule across files. Two different definitions of one name are undefined behaviour, which cannot be
# seen in a single file. With LYCEUM_ODR_CHECK, objects contain GCC's description of their types next to the code, and one link
# of all objects compares these descriptions.
function(one_definition_check)  # targets...
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-flto;-ffat-lto-objects>"
      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-flto,-ffat-lto-objects>")
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  set(result ${CMAKE_CURRENT_BINARY_DIR}/one_definition.o)
  add_custom_command(OUTPUT ${result} DEPENDS ${objects} VERBATIM COMMAND_EXPAND_LISTS
    COMMENT "Checking that every name has one definition"
    COMMAND ${CMAKE_CXX_COMPILER} -O0 -flto -r -nostdlib -flinker-output=rel -Werror=odr -Werror=lto-type-mismatch
      ${objects} -o ${result})
  add_custom_target(one_definition ALL DEPENDS ${result})
endfunction()
