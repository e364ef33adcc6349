dlaunch_test(service_test unit/rendezvous/messages_test.cpp unit/rendezvous/service_test.cpp
  unit/rendezvous/service_limits_test.cpp unit/rendezvous/stale_test.cpp LIBS dlaunch_rendezvous)
dlaunch_fuzz(messages_fuzz fuzz/messages_fuzz.cpp CORPUS messages LIBS dlaunch_rendezvous
  COVERED ../rendezvous/messages.cpp)
