# What others build against. Their programs are not instrumented, so our library must not be.
if(NOT DLAUNCH_SANITIZE)
  add_test(NAME install_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test
    ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
  set_tests_properties(install_test PROPERTIES TIMEOUT ${test_timeout})
endif()
# What the two commands install, by the archives of several systems.
add_test(NAME packages_test
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/packages_test ${PROJECT_SOURCE_DIR})
set_tests_properties(packages_test PROPERTIES TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77)
