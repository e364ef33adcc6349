# The packages that cpack makes of the components: packaging/make-packages builds them.
set(packages dlaunch dlaunchd libdlaunch0 libdlaunch-dev libdlaunch-nccl)
if(TARGET dlaunch_pmix)
  list(APPEND packages libdlaunch-pmix)
endif()

set(DLAUNCH_PACKAGE_CONTACT "dlaunch maintainers <maintainers@dlaunch.example>" CACHE STRING
  "Who answers for the packages: NAME <ADDRESS>")
set(DLAUNCH_PACKAGE_RELEASE "1" CACHE STRING
  "What follows the version in a package's: 1, or 1~deb12 for packages of one Debian")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME dlaunch)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${DLAUNCH_PACKAGE_CONTACT})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # Each package has its own.
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE dlaunch)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DLAUNCH_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# Debian wants a changelog and a copyright in each package.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/debian/add_documents.cmake)
set(CPACK_DLAUNCH_SOURCE_DIR ${PROJECT_SOURCE_DIR})

# In a package control files keep their modes, whatever those of the checkout are. (cpack's own way to
# that, CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION, makes a program of `triggers` in CMake 4.)
set(control ${CMAKE_CURRENT_BINARY_DIR}/debian)
set(readable OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
foreach(file IN ITEMS conffiles triggers)
  configure_file(debian/${file} ${control}/${file} COPYONLY FILE_PERMISSIONS ${readable})
endforeach()
foreach(script IN ITEMS postinst prerm postrm)
  configure_file(debian/${script} ${control}/${script} COPYONLY
    FILE_PERMISSIONS ${readable} OWNER_EXECUTE GROUP_EXECUTE WORLD_EXECUTE)
endforeach()

foreach(package IN LISTS packages)
  string(TOUPPER ${package} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
endforeach()

# Versions of one build work together; which others do is not tested.
set(CPACK_COMPONENT_DLAUNCH_DEPENDS libdlaunch0)
set(CPACK_COMPONENT_DLAUNCHD_DEPENDS libdlaunch0)
set(CPACK_COMPONENT_LIBDLAUNCH-NCCL_DEPENDS libdlaunch0)
set(CPACK_COMPONENT_LIBDLAUNCH-PMIX_DEPENDS dlaunch)
set(CPACK_COMPONENT_LIBDLAUNCH-DEV_DEPENDS libdlaunch0 dlaunch)

set(CPACK_DEBIAN_DLAUNCH_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_DLAUNCH_PACKAGE_SUGGESTS "libdlaunch-nccl, libdlaunch-pmix, dlaunchd")
set(CPACK_COMPONENT_DLAUNCH_DESCRIPTION
"launcher for programs of many processes
dlaunch starts a program on every core of one machine or many, lets the
processes find each other, ends all when one fails, and names the rank, the
call and the reason. It takes torchrun's options and starts unmodified PyTorch
scripts.")

set(CPACK_DEBIAN_DLAUNCHD_PACKAGE_SECTION net)
set(CPACK_DEBIAN_DLAUNCHD_PACKAGE_DEPENDS "init-system-helpers (>= 1.54~)")
set(CPACK_DEBIAN_DLAUNCHD_PACKAGE_CONTROL_EXTRA
  "${control}/postinst;${control}/prerm;${control}/postrm;${control}/conffiles")
set(CPACK_COMPONENT_DLAUNCHD_DESCRIPTION
"rendezvous daemon for jobs of dlaunch
The agents of many jobs meet at dlaunchd. It decides which nodes make up each
job's world, notices lost nodes, and holds each job's key-value store. As it is
installed, it listens on loopback alone; beyond it asks for a secret.")

set(CPACK_DEBIAN_LIBDLAUNCH0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBDLAUNCH0_PACKAGE_SUGGESTS "libdlaunch-nccl")
set(CPACK_DEBIAN_LIBDLAUNCH0_PACKAGE_CONTROL_EXTRA
  "${control}/libdlaunch0/shlibs;${control}/triggers")
set(CPACK_COMPONENT_LIBDLAUNCH0_DESCRIPTION
"collectives and messages between the ranks of a job
The library that programs started by dlaunch link: barrier, broadcast,
all_reduce and the other collectives, messages with tags, a key-value store,
and errors that name the ranks. Ranks of one machine share memory, others use
TCP.")

set(CPACK_DEBIAN_LIBDLAUNCH-DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_LIBDLAUNCH-DEV_DESCRIPTION
"collectives and messages between the ranks of a job (development files)
Headers for C++20 and C11, and what find_package(dlaunch CONFIG) and pkg-config
ask for.")

set(CPACK_DEBIAN_LIBDLAUNCH-NCCL_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBDLAUNCH-NCCL_PACKAGE_SUGGESTS "libnccl2")
set(CPACK_DEBIAN_LIBDLAUNCH-NCCL_PACKAGE_CONTROL_EXTRA
  "${control}/libdlaunch-nccl/shlibs;${control}/triggers")
set(CPACK_COMPONENT_LIBDLAUNCH-NCCL_DESCRIPTION
"collectives with CUDA buffers, by NCCL
What libdlaunch0 loads when the first CUDA buffer comes. It loads the driver
and NCCL, which are not part of it: NCCL comes from NVIDIA, or with PyTorch.")

set(CPACK_DEBIAN_LIBDLAUNCH-PMIX_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBDLAUNCH-PMIX_PACKAGE_CONTROL_EXTRA
  "${control}/libdlaunch-pmix/shlibs;${control}/triggers")
set(CPACK_COMPONENT_LIBDLAUNCH-PMIX_DESCRIPTION
"programs of Open MPI under dlaunch
What dlaunch loads to tell the ranks of an Open MPI program of each other, by
OpenPMIx. MPICH, MVAPICH and Intel MPI need nothing of it.")

# Which package a program needs that links a library; dpkg-shlibdeps asks. Two are for our own use.
set(own "(= ${PROJECT_VERSION}-${DLAUNCH_PACKAGE_RELEASE})")
file(CONFIGURE OUTPUT debian/libdlaunch0/shlibs CONTENT
  "libdlaunch 0 libdlaunch0 (>= ${PROJECT_VERSION})\nlibdlaunch_tls 0 libdlaunch0 ${own}\n")
file(CONFIGURE OUTPUT debian/libdlaunch-nccl/shlibs CONTENT "libdlaunch_nccl 0 libdlaunch-nccl ${own}\n")
file(CONFIGURE OUTPUT debian/libdlaunch-pmix/shlibs CONTENT "libdlaunch_pmix 0 libdlaunch-pmix ${own}\n")

include(CPack)
