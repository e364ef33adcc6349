# Run by cpack when the components' files lie in their folders: what every package of Debian has in
# /usr/share/doc/NAME, and its manual pages compressed. The times of the changelog are those of SOURCE_DATE_EPOCH.
find_program(gzip gzip REQUIRED)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(package IN LISTS CPACK_COMPONENTS_ALL)
  set(folder ${CPACK_TEMPORARY_DIRECTORY}/${package}/usr/share/doc/${package})
  file(COPY ${CPACK_DLAUNCH_SOURCE_DIR}/packaging/debian/copyright DESTINATION ${folder}
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  configure_file(${CPACK_DLAUNCH_SOURCE_DIR}/CHANGELOG.md ${folder}/changelog
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ COPYONLY)
  file(WRITE ${folder}/changelog.Debian
    "dlaunch (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
    "  * Version ${CPACK_PACKAGE_VERSION}; what is new in it stands in changelog.gz.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  file(GLOB manual ${CPACK_TEMPORARY_DIRECTORY}/${package}/usr/share/man/man[0-9]/*.[0-9])
  execute_process(COMMAND ${gzip} -9nf ${folder}/changelog ${folder}/changelog.Debian ${manual}
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
