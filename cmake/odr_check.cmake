# Two definitions of one name that differ are undefined behaviour, and no compiler of a single file sees them. With
# LYCEUM_ODR_CHECK, objects hold what GCC knows of their types beside their code; one link of all reads that and nothing else.
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
