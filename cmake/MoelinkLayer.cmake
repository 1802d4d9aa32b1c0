# A layer is a folder, a target, and an include prefix. Each layer's headers are reachable only through the target, by a
# folder of links in the build tree, so that an include in the wrong direction does not compile.
#
#   moelink_include_prefix(<target> <scope> <prefix> <folder>)   "#include <prefix>/..." finds <folder>/...
function(moelink_include_prefix target scope prefix folder)
  set(root "${PROJECT_BINARY_DIR}/layers/${target}")
  get_filename_component(parent "${root}/${prefix}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  file(CREATE_LINK "${folder}" "${root}/${prefix}" SYMBOLIC)
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${root}>)
endfunction()

#   moelink_layer(<name> PREFIX <include prefix> [DEPENDS <targets>...])   an OBJECT library moelink_<name> from the .cpp
#   files of the current folder; "#include <prefix>/x.hpp" finds them. Objects are gathered by src/CMakeLists.txt.
function(moelink_layer name)
  cmake_parse_arguments(arg "" "PREFIX" "DEPENDS;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(excluded IN LISTS arg_EXCLUDE)
    list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/${excluded}")
  endforeach()
  add_library(moelink_${name} OBJECT ${sources})
  moelink_include_prefix(moelink_${name} PUBLIC ${arg_PREFIX} "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(moelink_${name} PUBLIC ${arg_DEPENDS} PRIVATE moelink_flags)
  moelink_compile_at_once_if_sanitized(moelink_${name})
  set_property(GLOBAL APPEND PROPERTY MOELINK_LAYERS moelink_${name})
endfunction()

#   moelink_parse_flags(<sources>...)   Those of the sources that include CLI11 are compiled with -O1: a third of the time
#   to compile them goes into making fast what runs once.
function(moelink_parse_flags)
  foreach(source IN LISTS ARGN)
    file(STRINGS "${source}" includes REGEX "^#include <CLI/CLI.hpp>" LIMIT_COUNT 1)
    if(includes)
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
    endif()
  endforeach()
endfunction()

#   moelink_compile_at_once_if_sanitized(<target>)   Several sources as one in sanitizer builds, where half of the time
#   to compile goes into reading the same headers. That each source includes what it needs, the other builds see.
function(moelink_compile_at_once_if_sanitized target)
  if(MOELINK_SANITIZER)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # g++ takes a source that is included for a header, whose types would differ from source to source.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
