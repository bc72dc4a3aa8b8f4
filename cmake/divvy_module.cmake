# divvy_unity(TARGET [APART a.cc ..]): where DIVVY_UNITY is on, as for `make test`, the target's sources are compiled
# a dozen at a time, for most of what a compiler does is the same for each of them. So names in the anonymous
# namespaces of one folder must differ; APART names sources in which they had better not. All other presets compile
# each source by itself, and so find what it forgot to include.
option(DIVVY_UNITY "Compile sources a dozen at a time: a clean build in half the time" OFF)
function(divvy_unity TARGET)
  cmake_parse_arguments(ARG "" "" "APART" ${ARGN})
  if(DIVVY_UNITY)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# One folder, one static library.
#
#   divvy_module(NAME [FAST] SOURCES a.cc a_test.cc .. DEPENDS module ..
#                [LINK library ..] [APART a.cc ..])
#
# Builds divvy::NAME from the sources, one test program from the *_test.cc among
# them, and, when tests are on, every header of the folder on its own, so that no
# header leans on what its includer happened to include first. Those that a source of
# the same name includes before all else are compiled so already. DEPENDS names
# modules and is what tools/check_includes.py holds the includes to; LINK names
# outside libraries; APART is divvy_unity's. FAST: tests run it for so long that
# optimising it pays, sanitizers or not.
function(divvy_module NAME)
  cmake_parse_arguments(ARG "FAST" "" "SOURCES;DEPENDS;LINK;APART" ${ARGN})
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
  divvy_unity(divvy_${NAME} APART ${ARG_APART})
  if(ARG_FAST)
    target_compile_options(divvy_${NAME} PRIVATE $<$<CONFIG:Debug>:-O1>)
  endif()

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
    divvy_unity(${NAME}_test APART ${ARG_APART})
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
