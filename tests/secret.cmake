# The attacker in these is OpenSSL itself.
dlaunch_test(tls_test unit/store/tls_test.cpp LIBS dlaunch_store OpenSSL::SSL)
dlaunch_test(secret_server_test unit/store/secret_server_test.cpp LIBS dlaunch_store)
dlaunch_fuzz(proof_fuzz fuzz/proof_fuzz.cpp CORPUS proof LIBS dlaunch_collectives
  COVERED ../collectives/transport/proof.cpp)
dlaunch_fuzz(control_fuzz fuzz/control_fuzz.cpp CORPUS control LIBS dlaunch_collectives
  COVERED ../collectives/transport/message.cpp ../collectives/transport/wait_chain.cpp)
