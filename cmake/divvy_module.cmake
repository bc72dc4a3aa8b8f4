# One folder, one static library.
#
#   divvy_module(NAME SOURCES a.cc a_test.cc .. DEPENDS module .. [LINK library ..])
#
# Builds divvy::NAME from the sources, one test program from the *_test.cc among
# them, and, when tests are on, every header of the folder on its own, so that no
# header leans on what its includer happened to include first. Those that a source of
# the same name includes before all else are compiled so already. DEPENDS names
# modules and is what tools/check_includes.py holds the includes to; LINK names
# outside libraries.
function(divvy_module NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  set(library_sources ${ARG_SOURCES})
  set(test_sources ${ARG_SOURCES})
  list(FILTER library_sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER test_sources INCLUDE REGEX "_test\\.cc$")

  add_library(divvy_${NAME} STATIC ${library_sources})
  add_library(divvy::${NAME} ALIAS divvy_${NAME})
  target_include_directories(divvy_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(divvy_${NAME} PRIVATE divvy_warnings)
  foreach(module IN LISTS ARG_DEPENDS)
    target_link_libraries(divvy_${NAME} PUBLIC divvy::${module})
  endforeach()
  target_link_libraries(divvy_${NAME} PUBLIC ${ARG_LINK})

  if(NOT DIVVY_TESTS)
    return()
  endif()

  file(GLOB headers CONFIGURE_DEPENDS *.h)
  set(header_sources)
  foreach(header IN LISTS headers)
    get_filename_component(stem ${header} NAME_WE)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${stem}.cc)
      file(STRINGS ${stem}.cc first REGEX "^#include" LIMIT_COUNT 1)
      if(first MATCHES "/${stem}\\.h\"$")
        continue()
      endif()
    endif()
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${stem}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND header_sources ${source})
  endforeach()
  if(header_sources)
    add_library(divvy_${NAME}_headers OBJECT ${header_sources})
    target_link_libraries(divvy_${NAME}_headers PRIVATE divvy_${NAME} divvy_warnings)
    # Nothing runs these objects: that they compile is all we ask.
    target_compile_options(divvy_${NAME}_headers PRIVATE -O0 -g0 -fno-sanitize=all)
  endif()

  if(test_sources)
    divvy_test(${NAME}_test SOURCES ${test_sources} LINK divvy::${NAME})
  endif()
endfunction()

# GoogleTest and what nearly every test includes, parsed once for all test programs: half of what compiling a test takes.
if(DIVVY_TESTS)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_headers.cc CONTENT "int main() {}\n")
  add_executable(divvy_test_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(divvy_test_headers PRIVATE divvy_warnings GTest::gmock)
  target_precompile_headers(divvy_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <map> <optional> <string> <vector>)
endif()

# A GoogleTest program, each of its tests known to ctest. SERIAL: no other test runs beside them, since they look at how
# long real processes take.
function(divvy_test NAME)
  cmake_parse_arguments(ARG "SERIAL" "" "SOURCES;LINK" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_LINK} divvy_warnings GTest::gmock GTest::gtest_main)
  target_precompile_headers(${NAME} REUSE_FROM divvy_test_headers)
  if(ARG_SERIAL)
    gtest_discover_tests(${NAME} DISCOVERY_TIMEOUT 60 PROPERTIES RUN_SERIAL TRUE)
  else()
    gtest_discover_tests(${NAME} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
