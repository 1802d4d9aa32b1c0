# cmake -D BUILD_DIR=... -D SOURCE_DIR=... -D WORK_DIR=... -D PROGRAM=... -D COMPONENTS=... -D VERSION=... -D CXX=...
#   -P install_test.cmake
# Installs the build into WORK_DIR/prefix, moves the prefix (it must be relocatable), then builds and runs PROGRAM
# against it: by find_package, and by pkg-config where that is installed. Any step that fails ends the script.
cmake_minimum_required(VERSION 3.25)

function(step what)
  message(STATUS "${what}")
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${what} failed (${result}):\n${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
step("install" "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/first")
file(RENAME "${WORK_DIR}/first" "${WORK_DIR}/prefix")

file(GLOB_RECURSE installed RELATIVE "${WORK_DIR}/prefix" "${WORK_DIR}/prefix/*")
foreach(header IN ITEMS moelink/exchange.hpp moelink/version.hpp moelink/protocol/types.hpp moelink/device/exec/entry.cuh)
  if(NOT "include/${header}" IN_LIST installed)
    message(FATAL_ERROR "include/${header} was not installed; installed: ${installed}")
  endif()
endforeach()

step("find_package: configure" "${CMAKE_COMMAND}" -S "${SOURCE_DIR}/consumer" -B "${WORK_DIR}/consumer" -G Ninja
  "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix" "-DCMAKE_CXX_COMPILER=${CXX}" "-DPROGRAM=${PROGRAM}"
  "-DCOMPONENTS=${COMPONENTS}")
step("find_package: build" "${CMAKE_COMMAND}" --build "${WORK_DIR}/consumer")
step("find_package: run" "${WORK_DIR}/consumer/consumer")

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(NOT PKG_CONFIG)
  message(STATUS "pkg-config is not installed: that half was not tried")
  return()
endif()
file(GLOB_RECURSE pc_file "${WORK_DIR}/prefix/moelink.pc")
get_filename_component(pc_dir "${pc_file}" DIRECTORY)
set(ENV{PKG_CONFIG_PATH} "${pc_dir}")
execute_process(COMMAND "${PKG_CONFIG}" --modversion moelink OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config says version '${version}', the file VERSION says '${VERSION}'")
endif()
execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs moelink OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
step("pkg-config: build" "${CXX}" -std=c++20 "${PROGRAM}" -o "${WORK_DIR}/by_pkg_config" ${flags})
file(GLOB_RECURSE library "${WORK_DIR}/prefix/libmoelink.*")
list(GET library 0 library)
get_filename_component(library_dir "${library}" DIRECTORY)
set(ENV{LD_LIBRARY_PATH} "${library_dir}")
step("pkg-config: run" "${WORK_DIR}/by_pkg_config")
