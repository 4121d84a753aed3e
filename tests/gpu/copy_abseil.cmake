# Copies Abseil's shared libraries that LIBRARY needs, and those that they need, into the folder INTO.
cmake_minimum_required(VERSION 3.25)
file(GET_RUNTIME_DEPENDENCIES
     LIBRARIES ${LIBRARY}
     PRE_INCLUDE_REGEXES "^libabsl_"
     PRE_EXCLUDE_REGEXES ".*"
     RESOLVED_DEPENDENCIES_VAR found
     UNRESOLVED_DEPENDENCIES_VAR missing)
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
foreach(library ${found})
  get_filename_component(name ${library} NAME)
  file(COPY_FILE ${library} ${INTO}/${name})  # what it links to, under the name that is looked for
endforeach()
