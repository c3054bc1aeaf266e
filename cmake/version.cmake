# Writes OUTPUT, a source file with the version, the commit of SOURCE and the kind of build. Runs in every build, and leaves the
# file if it is up to date.
# cmake -D SOURCE=… -D VERSION=… -D BUILD=… -D OUTPUT=… -P version.cmake
set(COMMIT)
if(EXISTS ${SOURCE}/.git)
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE COMMIT ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
configure_file(${SOURCE}/apps/version.cpp.in ${OUTPUT} @ONLY)
