# cmake --install build/cpu --prefix P: the program, its man page, configurations to start from, and the documentation.
include(GNUInstallDirs)
install(TARGETS lyceum RUNTIME)
install(FILES docs/lyceum.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum/configs FILES_MATCHING PATTERN "*.ini")
install(FILES scripts/mpi-env.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum)
install(DIRECTORY scripts/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/lyceum USE_SOURCE_PERMISSIONS)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")
