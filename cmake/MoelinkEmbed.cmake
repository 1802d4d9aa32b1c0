# Embeds source files into a library as string literals, and their hash, so that kernels can be compiled at run time from
# exactly the sources that the library was built with.
#
#   moelink_embed_sources(<target> OUTPUT <file.cpp> TEMPLATE <file.cpp.in> TREES <include prefix>=<folder>...)
#
# In the template, %table% becomes one line {"include name", R"moelink(text)moelink"}, for each file, and %digest% the hash
# of them all. The result is made again when a file changes, appears or goes. The same file is the script that does it:
#   cmake -D MANIFEST=<file> -D TEMPLATE=<file.cpp.in> -D OUTPUT=<file.cpp> -P MoelinkEmbed.cmake
# where each line of the manifest is "<include name>|<path>".

if(CMAKE_SCRIPT_MODE_FILE)
  file(STRINGS "${MANIFEST}" lines)
  set(digests "")
  set(table "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([^|]+)\\|(.+)$" matched "${line}")
    set(name "${CMAKE_MATCH_1}")
    set(path "${CMAKE_MATCH_2}")
    file(SHA256 "${path}" digest)
    file(READ "${path}" text)
    string(FIND "${text}" ")moelink\"" clash)
    if(NOT clash EQUAL -1)
      message(FATAL_ERROR "${path} contains the delimiter )moelink\" of the raw string literal it is embedded in")
    endif()
    string(APPEND digests "${name} ${digest}\n")
    string(APPEND table "    {\"${name}\", R\"moelink(${text})moelink\"},\n")
  endforeach()
  string(SHA256 digest "${digests}")
  # Not configure_file: what it looks for may stand in the sources.
  file(READ "${TEMPLATE}" result)
  string(REPLACE "%digest%" "${digest}" result "${result}")
  string(REPLACE "%table%" "${table}" result "${result}")
  file(WRITE "${OUTPUT}" "${result}")
  return()
endif()

set(moelink_embed_script "${CMAKE_CURRENT_LIST_FILE}")

function(moelink_embed_sources target)
  cmake_parse_arguments(arg "" "OUTPUT;TEMPLATE" "TREES" ${ARGN})
  set(manifest "")
  set(files "")
  foreach(tree IN LISTS arg_TREES)
    string(REGEX MATCH "^([^=]+)=(.+)$" matched "${tree}")
    set(prefix "${CMAKE_MATCH_1}")
    set(folder "${CMAKE_MATCH_2}")
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/*.cuh" "${folder}/*.hpp")
    list(SORT found)
    foreach(file IN LISTS found)
      string(APPEND manifest "${prefix}/${file}|${folder}/${file}\n")
      list(APPEND files "${folder}/${file}")
    endforeach()
  endforeach()
  # Only touched when the list changes: a re-run of CMake alone embeds nothing again.
  file(CONFIGURE OUTPUT "${arg_OUTPUT}.manifest" CONTENT "${manifest}" @ONLY)
  add_custom_command(OUTPUT "${arg_OUTPUT}"
    COMMAND "${CMAKE_COMMAND}" -D "MANIFEST=${arg_OUTPUT}.manifest" -D "TEMPLATE=${arg_TEMPLATE}"
      -D "OUTPUT=${arg_OUTPUT}" -P "${moelink_embed_script}"
    DEPENDS ${files} "${arg_OUTPUT}.manifest" "${arg_TEMPLATE}" "${moelink_embed_script}"
    COMMENT "Embedding the kernel sources" VERBATIM)
  target_sources(${target} PRIVATE "${arg_OUTPUT}")
endfunction()
