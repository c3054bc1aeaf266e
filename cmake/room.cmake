# One target a room of the design: lyceum_room(NAME USES rooms... LINKS libraries...)
# compiles every .cpp under lib/NAME; includes are written "NAME/file.h".
function(lyceum_room name)
  cmake_parse_arguments(ROOM "" "" "USES;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ROOM_USES} PRIVATE ${ROOM_LINKS})
endfunction()
