# Every decoder has a fuzz target and a corpus in fuzz/corpus. All builds replay the corpus and some
# seeded mutations of it. With DLAUNCH_BUILD_FUZZERS (Clang) the target is also a libFuzzer program
# that runs for some seconds as a test, and for as long as one likes by hand:
# build/tests/<name> FOLDER_FOR_WHAT_IS_NEW tests/fuzz/corpus/<corpus>.
option(DLAUNCH_BUILD_FUZZERS "Build the libFuzzer programs (needs Clang)" OFF)

function(dlaunch_fuzz name)
  cmake_parse_arguments(T "" "CORPUS" "LIBS;COVERED" ${ARGN})
  add_executable(${name}_replay ${T_UNPARSED_ARGUMENTS} fuzz/replay.cpp)
  target_link_libraries(${name}_replay PRIVATE dlaunch_settings ${T_LIBS})
  set_target_properties(${name}_replay PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name}_replay
    COMMAND ${name}_replay ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${T_CORPUS} 50000)
  set_tests_properties(${name}_replay PROPERTIES TIMEOUT ${test_timeout} LABELS fuzz)
  if(DLAUNCH_BUILD_FUZZERS)
    # What is COVERED is compiled once more, with the coverage that guides the fuzzer.
    list(TRANSFORM T_COVERED PREPEND ${PROJECT_SOURCE_DIR}/runtime/)
    add_executable(${name} ${T_UNPARSED_ARGUMENTS} ${T_COVERED})
    target_link_libraries(${name} PRIVATE dlaunch_settings ${T_LIBS})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
    set(findings ${PROJECT_BINARY_DIR}/tests/${name}_findings)
    file(MAKE_DIRECTORY ${findings})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_test(NAME ${name}
      COMMAND ${name} -max_total_time=10 -artifact_prefix=${findings}/ ${findings}
        ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${T_CORPUS})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${test_timeout} LABELS fuzz)
  endif()
endfunction()
