# What every target of the project has in common, in one place.

include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CPSHARD_CCACHE ccache)
if(CPSHARD_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CPSHARD_CCACHE})
endif()

set(CPSHARD_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined")
if(CPSHARD_SANITIZE)
  add_compile_options(-fsanitize=${CPSHARD_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CPSHARD_SANITIZE})
endif()

function(cpshard_defaults target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/cpshard>)
endfunction()

# cpshard_library(NAME plan [COMPONENT core] SOURCES ... DEPS ...): the static library cpshard_plan,
# known as cpshard::plan. With COMPONENT it is installed, as part of that component of the package.
function(cpshard_library)
  cmake_parse_arguments(ARG "" "NAME;COMPONENT" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(cpshard_${ARG_NAME} STATIC ${ARG_SOURCES})
  add_library(cpshard::${ARG_NAME} ALIAS cpshard_${ARG_NAME})
  cpshard_defaults(cpshard_${ARG_NAME})
  target_link_libraries(cpshard_${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(ARG_COMPONENT)
    cpshard_install(cpshard_${ARG_NAME} ${ARG_NAME} ${ARG_COMPONENT})
  endif()
endfunction()

# The target becomes cpshard::NAME of the package's component.
function(cpshard_install target name component)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)  # the headers need it
  install(TARGETS ${target} EXPORT cpshard_${component}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endfunction()

# cpshard_test(NAME index_map_test SOURCES ... DEPS ... LABELS unit): one GoogleTest executable.
function(cpshard_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  cpshard_defaults(${ARG_NAME})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                        ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
