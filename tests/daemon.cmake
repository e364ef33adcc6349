# dlaunchd: what it reads and says, and the program itself.
dlaunch_test(daemon_parts_test
  unit/rendezvous/config_test.cpp
  unit/rendezvous/systemd_test.cpp
  LIBS dlaunch_daemon)
