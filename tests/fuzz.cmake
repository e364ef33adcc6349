# Every decoder has a fuzz target and a corpus in fuzz/corpus. All builds replay the corpus and some
# seeded mutations of it; with DLAUNCH_FUZZ (Clang) the target is also a libFuzzer program:
# build/tests/<name> tests/fuzz/corpus/<corpus>.
option(DLAUNCH_FUZZ "Build the libFuzzer programs (needs Clang)" OFF)

function(dlaunch_fuzz name)
  cmake_parse_arguments(T "" "CORPUS" "LIBS" ${ARGN})
  add_executable(${name}_replay ${T_UNPARSED_ARGUMENTS} fuzz/replay.cpp)
  target_link_libraries(${name}_replay PRIVATE dlaunch_settings ${T_LIBS})
  set_target_properties(${name}_replay PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name}_replay
    COMMAND ${name}_replay ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${T_CORPUS} 50000)
  set_tests_properties(${name}_replay PROPERTIES TIMEOUT 120 LABELS fuzz)
  if(DLAUNCH_FUZZ)
    add_executable(${name} ${T_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PRIVATE dlaunch_settings ${T_LIBS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  endif()
endfunction()
