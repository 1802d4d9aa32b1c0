# One executable of GoogleTest cases, registered with ctest case by case, so that a skipped case is counted as skipped.
#
#   moelink_test(<name> SOURCES <files>... [LABELS <labels>...] [LIBRARIES <targets>...] [TIMEOUT <seconds>] [OPTIMIZED]
#                [PROCESSORS <number>])
#
# builds <name> into build/bin, linked with every layer (moelink_internal). `host` is the label if none is given:
#   host      runs anywhere                         gpu       needs a CUDA device      mpi    runs under mpirun
#   jit       compiles kernels, no device needed    multigpu  needs two or more        vm     boots a virtual machine
#   hosts     namespaces as hosts, needs root       (tests/scripts)
#   tsan      also belongs in the ThreadSanitizer build (MOELINK_SANITIZER=thread)
#   asan      also belongs in the AddressSanitizer build (MOELINK_SANITIZER=address)
# A sanitizer build contains only the executables that carry its label. TIMEOUT is per case, 60 seconds by default, and
# four times as long under a sanitizer.
# Cases of a sanitizer build carry its label in front of their name, so that all builds can be one ctest run.
# What a case needs and does not find, it says with GTEST_SKIP() << reason. An executable without cases fails.
# PROCESSORS: how many a case keeps busy all the time; others that run beside it would spin where they mean to wait.
# OPTIMIZED: its sources instantiate kernels themselves, and are compiled as the library is. All others only call what is
# compiled elsewhere, and take a third less time to compile with -O1.
include(GoogleTest)

# main() of all of them, compiled once.
add_library(moelink_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/support/main.cpp")
target_link_libraries(moelink_test_main PUBLIC GTest::gtest PRIVATE moelink_flags)

#   moelink_test_compilation(<target> <optimized>)   how the sources of a test are compiled. Sanitizer builds read
#   GoogleTest's header precompiled, which saves a third of the time. g++ 12 then forgets which lines are the system's, and
#   warns of them: there, warnings are left to the other builds, which read the same sources. ccache would keep nothing of
#   what was compiled so. POSITION_INDEPENDENT_CODE: those that share the header have the same flags.
function(moelink_test_compilation target optimized)
  if(NOT optimized)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(NOT MOELINK_SANITIZER OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE -w)
  if(target STREQUAL moelink_test_main)
    target_precompile_headers(${target} PRIVATE <gtest/gtest.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM moelink_test_main)
  endif()
endfunction()
moelink_test_compilation(moelink_test_main FALSE)

set(MOELINK_TEST_LABELS host jit mpi tsan asan gpu multigpu vm hosts)
set(MOELINK_LABEL_OF_SANITIZER_thread tsan)
set(MOELINK_LABEL_OF_SANITIZER_address asan)
set(MOELINK_TEST_ENVIRONMENT "TSAN_OPTIONS=second_deadlock_stack=1"
  "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1")

#   moelink_test_objects(<name> SOURCES <files>... [LIBRARIES <targets>...] [OPTIMIZED])   what several executables are
#   linked with, compiled once, and only if one of them is in this build. It sees all layers, unless LIBRARIES are named.
function(moelink_test_objects name)
  cmake_parse_arguments(arg "OPTIMIZED" "" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_LIBRARIES)
    set(arg_LIBRARIES moelink_internal)
  endif()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PUBLIC GTest::gtest ${arg_LIBRARIES} PRIVATE moelink_flags)
  moelink_test_compilation(${name} ${arg_OPTIMIZED})
endfunction()

# Sets <wanted> to whether a test with these labels belongs in this build.
function(moelink_test_wanted wanted)
  foreach(label IN LISTS ARGN)
    if(NOT label IN_LIST MOELINK_TEST_LABELS)
      message(FATAL_ERROR "test label '${label}' is unknown; known: ${MOELINK_TEST_LABELS} (cmake/MoelinkTest.cmake)")
    endif()
  endforeach()
  set(${wanted} TRUE PARENT_SCOPE)
  if(MOELINK_SANITIZER AND NOT "${MOELINK_LABEL_OF_SANITIZER_${MOELINK_SANITIZER}}" IN_LIST ARGN)
    set(${wanted} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(moelink_test name)
  cmake_parse_arguments(arg "OPTIMIZED" "TIMEOUT;PROCESSORS" "SOURCES;LABELS;LIBRARIES" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "moelink_test(${name}): needs SOURCES, and does not know '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS host)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  moelink_test_wanted(wanted ${arg_LABELS})
  if(NOT wanted)
    return()
  endif()

  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE moelink_flags moelink_internal ${arg_LIBRARIES} moelink_test_main)
  moelink_test_compilation(${name} ${arg_OPTIMIZED})
  # PRE_TEST: ctest lists the cases, the build does not run anything. Labels are a list, which PROPERTIES would flatten.
  # Where nothing is known of earlier runs, the longest start first, so that none is left alone at the end.
  set(cost "")
  if(arg_TIMEOUT GREATER 60)
    set(cost COST ${arg_TIMEOUT})
  endif()
  if(MOELINK_SANITIZER)  # ThreadSanitizer makes code ten times slower, and machines are shared
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()
  # In ctest a case carries tsan or asan only where it runs under that sanitizer.
  set(prefix "${name}/")
  list(REMOVE_ITEM arg_LABELS tsan asan)
  if(MOELINK_SANITIZER)
    set(sanitizer_label ${MOELINK_LABEL_OF_SANITIZER_${MOELINK_SANITIZER}})
    string(PREPEND prefix "${sanitizer_label}:")
    list(APPEND arg_LABELS ${sanitizer_label})
  endif()
  set(processors "")
  if(arg_PROCESSORS)
    set(processors PROCESSORS ${arg_PROCESSORS})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${prefix}" NO_PRETTY_VALUES
    TEST_LIST ${name}_cases PROPERTIES TIMEOUT ${arg_TIMEOUT} ${cost} ${processors})
  set(properties "LABELS [[${arg_LABELS}]] ENVIRONMENT [[${MOELINK_TEST_ENVIRONMENT}]]")
  set(gpu_properties "")
  if("gpu" IN_LIST arg_LABELS OR "multigpu" IN_LIST arg_LABELS)
    # Where there are devices, one process at a time has them.
    set(gpu_properties "if(EXISTS /dev/nvidiactl)\n"
      "  set_tests_properties(\${${name}_cases} PROPERTIES RESOURCE_LOCK gpu)\nendif()\n")
  endif()
  set(properties_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake")
  file(WRITE "${properties_file}" "set_tests_properties(\${${name}_cases} PROPERTIES ${properties})\n" ${gpu_properties})
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${properties_file}")
endfunction()

#   moelink_mpirun_test(<name> <command>...)   runs the command as four ranks: test mpirun/<name>, label mpi. Only where
#   MPI was found. The variables replace flags of Open MPI's mpirun, which others do not know; they ignore the variables.
#   Programs do not pass through tests/support/main.cpp: like there, multicast is off.
function(moelink_mpirun_test name)
  add_test(NAME "mpirun/${name}" COMMAND "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} 4 ${ARGN})
  set_tests_properties("mpirun/${name}" PROPERTIES LABELS mpi TIMEOUT 60 ENVIRONMENT
    "MOELINK_NVLS=0;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1")
endfunction()
