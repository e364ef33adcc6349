# dlaunchd: what it reads and says, and the program itself.
dlaunch_test(daemon_parts_test
  unit/rendezvous/config_test.cpp
  unit/rendezvous/http_server_test.cpp
  unit/rendezvous/job_journal_test.cpp
  unit/rendezvous/status_pages_test.cpp
  unit/rendezvous/systemd_test.cpp
  LIBS dlaunch_daemon nlohmann_json::nlohmann_json)

dlaunch_test(dlaunchd_test process/dlaunchd_test.cpp process/by_hand_process.cpp
  LIBS dlaunch_rendezvous)
add_dependencies(dlaunchd_test dlaunchd_program)

# How much systemd thinks the unit exposes, of 10; and the unit under a systemd that is really booted.
add_test(NAME dlaunchd_exposure_test COMMAND sh -c
  "command -v systemd-analyze >/dev/null || { echo 'skipped: there is no systemd-analyze (package systemd)'; exit 77; }
   exec systemd-analyze security --offline=yes --no-pager --threshold=15 \"$0\""
  ${PROJECT_BINARY_DIR}/packaging/systemd/dlaunchd.service)
set_tests_properties(dlaunchd_exposure_test PROPERTIES LABELS systemd SKIP_RETURN_CODE 77 TIMEOUT 60)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME dlaunchd_booted_test COMMAND Python3::Interpreter
  ${CMAKE_CURRENT_SOURCE_DIR}/systemd/booted_test.py ${PROJECT_BINARY_DIR})
set_tests_properties(dlaunchd_booted_test PROPERTIES LABELS systemd SKIP_RETURN_CODE 77 TIMEOUT 120)
