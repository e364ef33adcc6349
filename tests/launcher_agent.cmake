dlaunch_test(supervisor_test unit/launcher/supervisor_test.cpp LIBS dlaunch_agent)
dlaunch_test(output_test unit/launcher/output_lines_test.cpp LIBS dlaunch_agent)
