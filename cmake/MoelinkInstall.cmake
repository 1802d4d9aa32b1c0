# Install and export: find_package(moelink) and pkg-config find the library; the headers of the protocol and of the
# device code are a product of their own (moelink/protocol, moelink/device) and need no library.
include(CMakePackageConfigHelpers)

function(moelink_install)
  set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/moelink")
  install(TARGETS moelink moelink_headers EXPORT moelink-targets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT moelink-targets NAMESPACE moelink:: DESTINATION "${package_dir}")
  if(TARGET moelink_mpi)  # a component of its own: find_package(moelink COMPONENTS mpi)
    install(TARGETS moelink_mpi EXPORT moelink-mpi-targets
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT moelink-mpi-targets NAMESPACE moelink:: DESTINATION "${package_dir}")
  endif()

  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/moelink" "${PROJECT_BINARY_DIR}/include/moelink"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/protocol/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/moelink/protocol"
    FILES_MATCHING PATTERN "*.hpp")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/kernels/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/moelink/device"
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")

  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/moelink-config.cmake.in"
    "${PROJECT_BINARY_DIR}/moelink-config.cmake" INSTALL_DESTINATION "${package_dir}"
    NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/moelink-config-version.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/moelink-config.cmake" "${PROJECT_BINARY_DIR}/moelink-config-version.cmake"
    DESTINATION "${package_dir}")

  # A static library drags its own dependencies into whoever links it.
  set(moelink_pc_libs "-lmoelink")
  set(moelink_pc_private "-pthread")
  if(CMAKE_DL_LIBS)
    string(APPEND moelink_pc_private " -l${CMAKE_DL_LIBS}")
  endif()
  if(NOT BUILD_SHARED_LIBS)
    string(APPEND moelink_pc_libs " ${moelink_pc_private}")
    set(moelink_pc_private "")
  endif()
  # Absolute directories stay absolute; relative ones follow the file, so that a moved prefix still works.
  file(RELATIVE_PATH moelink_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" moelink_pc_prefix "${moelink_pc_prefix}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(moelink_pc_libdir "${CMAKE_INSTALL_LIBDIR}")
    set(moelink_pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
  else()
    set(moelink_pc_libdir "\${pcfiledir}/..")
    set(moelink_pc_includedir "\${pcfiledir}/${moelink_pc_prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/moelink.pc.in" "${PROJECT_BINARY_DIR}/moelink.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/moelink.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()
