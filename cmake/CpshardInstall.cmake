# What `cmake --install` puts where. Components: `runtime`, the two programs; `dev`, libraries, headers
# and messages for who builds on them; `embedded`, libcpshard.so and its header. The package has
# components of its own: `core` (plan, batch, exec: Abseil and xxHash), `place` (executors for a GPU
# too: where there is CUDA, its runtime) and `client` (gRPC and Protocol Buffers too).
include(CMakePackageConfigHelpers)

set(CPSHARD_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/cpshard)

install(TARGETS cpshard cpshardd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)

foreach(folder core/plan core/batch core/exec client)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cpshard/${folder}
          COMPONENT dev
          FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE PATTERN draw EXCLUDE
          PATTERN embedded EXCLUDE PATTERN python EXCLUDE)
endforeach()
# Of libcpshard.so what a C program includes.
install(FILES client/embedded/cpshard.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT embedded)
# Without codec.h and its like: they include the generated messages.
foreach(header error_details frames json options replies session_codec session_messages
        session_views slices status tensor_places)
  install(FILES proto/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cpshard/proto
          COMPONENT dev)
endforeach()
install(DIRECTORY proto/cpshard/v1 DESTINATION ${CMAKE_INSTALL_DATADIR}/cpshard/proto/cpshard
        COMPONENT dev FILES_MATCHING PATTERN "*.proto")

foreach(component core place client)
  install(EXPORT cpshard_${component} NAMESPACE cpshard:: FILE cpshard-${component}.cmake
          DESTINATION ${CPSHARD_PACKAGE} COMPONENT dev)
endforeach()
configure_package_config_file(cmake/cpshardConfig.cmake.in ${PROJECT_BINARY_DIR}/cpshardConfig.cmake
                              INSTALL_DESTINATION ${CPSHARD_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cpshardConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cpshardConfig.cmake
              ${PROJECT_BINARY_DIR}/cpshardConfigVersion.cmake cmake/FindxxHash.cmake
        DESTINATION ${CPSHARD_PACKAGE} COMPONENT dev)
