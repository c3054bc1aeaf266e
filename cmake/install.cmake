# cmake --install build/cpu --prefix P: installs the program, its man page, example configurations, scripts and documentation.
include(GNUInstallDirs)
install(TARGETS lyceum RUNTIME)
install(FILES docs/lyceum.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum/configs FILES_MATCHING PATTERN "*.ini")
install(PROGRAMS scripts/quickstart.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum)
install(FILES scripts/mpi-env.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum)
install(PROGRAMS scripts/sweep.py DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum)
install(DIRECTORY scripts/sweeps DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum FILES_MATCHING PATTERN "*.py")
install(DIRECTORY scripts/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum USE_SOURCE_PERMISSIONS)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")
file(CONFIGURE OUTPUT lyceum-completion.sh CONTENT "source <(lyceum completion bash)\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lyceum-completion.sh
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lyceum)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -D MANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
  -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)

# cpack --config build/cpu/CPackConfig.cmake -G DEB: makes a Debian package with the same contents.
set(CPACK_PACKAGE_NAME lyceum)
set(CPACK_PACKAGE_CONTACT "The Lyceum authors <lyceum@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains sparse transformers on a cluster, started by mpirun")
set(CPACK_PACKAGE_DESCRIPTION "Lyceum trains mixture-of-experts models and their relatives with pipeline, tensor, data and \
expert parallelism over MPI, on CPUs or NVIDIA GPUs. It resumes from HDF5 checkpoints on any mesh and logs what routers do.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
